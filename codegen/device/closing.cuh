// The last of a group of blocks to end: it counts itself for all its threads, which have met at a
// barrier, and reads what the others have stored from the second-level cache. (PTX ISA, "Memory
// Consistency Model": a release after a barrier covers what other threads stored before it.)
NT_DEV int nt_arrived(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// A pointer through which nothing is read before this point.
template <class T> NT_DEV const T* nt_after(const T* p) { asm volatile("" : "+l"(p) :: "memory"); return p; }

NT_DEV float nt_stored(const float* p) { float v; asm("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p)); return v; }

NT_DEV double nt_stored(const double* p) { double v; asm("ld.global.cg.f64 %0, [%1];" : "=d"(v) : "l"(p)); return v; }

NT_DEV int nt_stored(const int* p) { int v; asm("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }

NT_DEV nt_u16 nt_stored(const nt_u16* p) { nt_u16 v; asm("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p)); return v; }

NT_DEV void nt_stored4(float (&to)[4], const float* p) {
  asm("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "l"(p));
}

// A named barrier of `threads` that tells all of them whether any said so.
NT_DEV int nt_named_any(int id, int threads, int mine) {
  int any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.s32 p, %3, 0;\nbarrier.cta.red.or.pred q, %1, %2, p;\nselp.s32 %0, 1, 0, q;\n}"
               : "=r"(any) : "r"(id), "r"(threads), "r"(mine) : "memory");
  return any;
}
