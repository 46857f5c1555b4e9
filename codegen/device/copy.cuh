// Copies from global to shared memory that run behind the computation (sm_80 and later), and plain
// accesses by 32-bit shared address.
// Blocks are separated by blank lines; a kernel receives the blocks that it needs (codegen/headers.py).

NT_DEV nt_u32 nt_shared(const void* p) { return (nt_u32)__cvta_generic_to_shared(p); }

// 16 bytes, past the L1 cache
NT_DEV void nt_copy16(nt_u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

// the first `valid` of 16 bytes; the others become zeros
NT_DEV void nt_copy16_part(nt_u32 to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(valid) : "memory");
}

NT_DEV void nt_copy8_part(nt_u32 to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(from), "r"(valid) : "memory");
}

NT_DEV void nt_copy4_part(nt_u32 to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(valid) : "memory");
}

// closes the group of the copies issued since the last one
NT_DEV void nt_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// all but the `pending` newest groups of this thread have landed
template <int pending> NT_DEV void nt_copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
}

NT_DEV void nt_store16(nt_u32 to, nt_u32 a, nt_u32 b, nt_u32 c, nt_u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

NT_DEV void nt_store8(nt_u32 to, nt_u32 a, nt_u32 b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(to), "r"(a), "r"(b) : "memory");
}

NT_DEV void nt_store4(nt_u32 to, nt_u32 v) {
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(to), "r"(v) : "memory");
}

NT_DEV void nt_store2(nt_u32 to, nt_u16 v) {
  asm volatile("st.shared.b16 [%0], %1;" :: "r"(to), "h"(v) : "memory");
}

NT_DEV nt_u32 nt_load4(nt_u32 from) {
  nt_u32 v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

NT_DEV nt_u16 nt_load2(nt_u32 from) {
  nt_u16 v;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
  return v;
}

// 16 bytes from shared to global memory, both aligned
NT_DEV void nt_export16(void* to, nt_u32 from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  *(uint4*)to = v;
}

// 4, 8, 16 or more bytes of read-only global memory, aligned to their size (to 16 where more)
template <int words> NT_DEV void nt_read(nt_u32 (&w)[words], const void* from) {
  if constexpr (words == 1) w[0] = __ldg((const nt_u32*)from);
  else if constexpr (words == 2) {
    const uint2 v = __ldg((const uint2*)from);
    w[0] = v.x; w[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < words / 4; i++) {
      const uint4 v = __ldg((const uint4*)from + i);
      w[4 * i] = v.x; w[4 * i + 1] = v.y; w[4 * i + 2] = v.z; w[4 * i + 3] = v.w;
    }
  }
}

template <int words> NT_DEV void nt_zero(nt_u32 (&w)[words]) {
#pragma unroll
  for (int i = 0; i < words; i++) w[i] = 0;
}
