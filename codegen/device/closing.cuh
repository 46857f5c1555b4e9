// The last of a group of blocks to end: what others of it have stored is read from the second-level
// cache, never from a line that this multiprocessor might have kept.

NT_DEV float nt_stored(const float* p) { return __ldcg(p); }

NT_DEV double nt_stored(const double* p) { return __ldcg(p); }

NT_DEV int nt_stored(const int* p) { return __ldcg(p); }

NT_DEV nt_u16 nt_stored(const nt_u16* p) { return __ldcg(p); }

NT_DEV void nt_stored4(float (&to)[4], const float* p) {
  const float4 v = __ldcg((const float4*)p);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// A named barrier of `threads` that tells all of them whether any said so.
NT_DEV int nt_named_any(int id, int threads, int mine) {
  int any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.s32 p, %3, 0;\nbarrier.cta.red.or.pred q, %1, %2, p;\nselp.s32 %0, 1, 0, q;\n}"
               : "=r"(any) : "r"(id), "r"(threads), "r"(mine) : "memory");
  return any;
}
