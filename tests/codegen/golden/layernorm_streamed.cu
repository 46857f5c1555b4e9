typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
NT_DEV nt_u16 nt_bf16_of_f32(float x) { nt_u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
// two values in one register, the first in the low half
NT_DEV nt_u32 nt_bf16x2_of_f32(float lo, float hi) { nt_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
// Where launches overlap (sm_90, programmatic dependent launch): what the launches before this one
// wrote is there, and the next one may begin. It may not before, or its caches could hold what the
// launch before this one has read. Elsewhere, and where this launch began alone, nothing.
NT_DEV void nt_overlap() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
template <int B> struct nt_vec { nt_u32 x[(B + 3) / 4]; };
template <int B> NT_DEV nt_vec<B> nt_zeros() {
  nt_vec<B> r;
  #pragma unroll
  for (int k = 0; k < (B + 3) / 4; k++) r.x[k] = 0u;
  return r;
}
NT_DEV void nt_ld16(nt_u32* r, const void* p) { asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p)); }
NT_DEV void nt_ld16_kept(nt_u32* r, const void* p) { asm("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p)); }
NT_DEV void nt_ld8(nt_u32* r, const void* p) { asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(p)); }
NT_DEV void nt_st16(void* p, const nt_u32* r) { asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" :: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory"); }
NT_DEV void nt_st8(void* p, const nt_u32* r) { asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" :: "l"(p), "r"(r[0]), "r"(r[1]) : "memory"); }
// B bytes from an address that is a multiple of min(B, 16); KEPT keeps the line in the L1 cache
template <int B, bool KEPT> NT_DEV nt_vec<B> nt_load(const void* p) {
  nt_vec<B> r;
  if constexpr (B % 16 == 0) {
    #pragma unroll
    for (int k = 0; k < B / 16; k++) {
      if constexpr (KEPT) nt_ld16_kept(r.x + 4 * k, (const char*)p + 16 * k);
      else nt_ld16(r.x + 4 * k, (const char*)p + 16 * k);
    }
  } else if constexpr (B == 8) nt_ld8(r.x, p);
  else if constexpr (B == 4) r.x[0] = *(const nt_u32*)p;
  else if constexpr (B == 2) r.x[0] = *(const nt_u16*)p;
  else r.x[0] = *(const nt_u8*)p;
  return r;
}
template <int B> NT_DEV void nt_store(void* p, const nt_vec<B>& v) {
  if constexpr (B % 16 == 0) {
    #pragma unroll
    for (int k = 0; k < B / 16; k++) nt_st16((char*)p + 16 * k, v.x + 4 * k);
  } else if constexpr (B == 8) nt_st8(p, v.x);
  else if constexpr (B == 4) *(nt_u32*)p = v.x[0];
  else if constexpr (B == 2) *(nt_u16*)p = (nt_u16)v.x[0];
  else *(nt_u8*)p = (nt_u8)v.x[0];
}
template <int B> NT_DEV float nt_get_bf16(const nt_vec<B>& v, int e) { return __uint_as_float((e & 1) ? (v.x[e >> 1] & 0xffff0000u) : (v.x[e >> 1] << 16)); }
template <int V> NT_DEV nt_vec<2 * V> nt_pack_bf16(const float* f) {
  nt_vec<2 * V> r;
  #pragma unroll
  for (int k = 0; k < V / 2; k++) r.x[k] = nt_bf16x2_of_f32(f[2 * k], f[2 * k + 1]);
  if constexpr (V == 1) r.x[0] = nt_bf16_of_f32(f[0]);
  return r;
}
// another lane's copy of a plain struct
template <class S> NT_DEV S nt_other(const S& s, int distance) {
  constexpr int n = (sizeof(S) + 3) / 4;
  nt_u32 w[n] = {};
  memcpy(w, &s, sizeof(S));
  #pragma unroll
  for (int k = 0; k < n; k++) w[k] = __shfl_xor_sync(~0u, w[k], distance);
  S r;
  memcpy(&r, w, sizeof(S));
  return r;
}
// partial states of THREADS neighbouring threads merged; every thread gets the result. `shared` has a
// slot for each warp of the block, and is used once.
template <int THREADS, class S, class F> NT_DEV S nt_reduce(S s, F merge, S* shared) {
  constexpr int width = THREADS < 32 ? THREADS : 32, warps = THREADS / 32;
  #pragma unroll
  for (int d = width / 2; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  if constexpr (warps > 1) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (lane == 0) shared[warp] = s;
    __syncthreads();
    s = shared[(warp / warps) * warps + lane % warps];
    #pragma unroll
    for (int d = warps / 2; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  }
  return s;
}

// tile program ln  [n:4/23 c:128/300]  grid (n)
//     for blocks of c:
//         t4[n, c]: bf16 = read x[n, c]
//         r3[n] = sum[c](t4)
//     t2[n] = (r3 / 300)
//     for blocks of c:
//         t8[n, c]: bf16 = read x[n, c]
//         t7[n, c] = ((t8 - t2) * (t8 - t2))
//         r6[n] = sum[c](t7)
//     t5[n] = rsqrt(((r6 / 300) + 1e-05))
//     for blocks of c:
//         t1[n, c]: bf16 = read x[n, c]
//         t9[c]: bf16 = read w[c]
//         t10[c]: bf16 = read b[c]
//         t0[n, c] = ((((t1 - t2) * t5) * t9) + t10)
//         write y[n, c] = t0 as bf16
extern "C" __global__ void __launch_bounds__(256, 4) ln(
    const nt_u16* __restrict__ p_x, const nt_u16* __restrict__ p_w, const nt_u16* __restrict__ p_b, nt_u16* __restrict__ p_y) {
  nt_overlap();
  const int t = threadIdx.x % 32;
  const nt_i64 place = (nt_i64)(blockIdx.x) * 8 + threadIdx.x / 32;
  const bool live = place < 23LL;
  const nt_i64 row = live ? place : 22LL;
  const int i_n = (int)(row);
  float r3 = 0.0f;
  nt_vec<8> v_t4[3];
  nt_vec<8> v_t9[3];
  nt_vec<8> v_t10[3];
  const int ru0 = i_n * 300;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int c0 = (t + i * 32) * 4;
    v_t4[i] = c0 < 300 ? nt_load<8, false>(p_x + ru0 + c0) : nt_zeros<8>();
    v_t9[i] = c0 < 300 ? nt_load<8, true>(p_w + c0) : nt_zeros<8>();
    v_t10[i] = c0 < 300 ? nt_load<8, true>(p_b + c0) : nt_zeros<8>();
  }
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int c0 = (t + i * 32) * 4;
    if (c0 < 300) {
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        r3 = r3 + (nt_get_bf16(v_t4[i], e));
      }
    }
  }
  struct State0 { float r3; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r3 = a.r3 + b.r3;
    return c;
  };
  __shared__ State0 shared0[8];
  const State0 all0 = nt_reduce<32>(State0{r3}, merge0, shared0);
  r3 = all0.r3;
  float r6 = 0.0f;
  const float ru1 = r3 * 0.0033333334f;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int c0 = (t + i * 32) * 4;
    if (c0 < 300) {
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        const float el0 = (nt_get_bf16(v_t4[i], e)) - ru1;
        r6 = r6 + (el0 * el0);
      }
    }
  }
  struct State1 { float r6; };
  auto merge1 = [&](const State1& a, const State1& b) {
    State1 c;
    c.r6 = a.r6 + b.r6;
    return c;
  };
  __shared__ State1 shared1[8];
  const State1 all1 = nt_reduce<32>(State1{r6}, merge1, shared1);
  r6 = all1.r6;
  const float ru2 = rsqrtf(((r6 * 0.0033333334f) + 1e-05f));
  const int ru3 = i_n * 300;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int c0 = (t + i * 32) * 4;
    if (c0 < 300) {
      float o_y[4];
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        o_y[e] = (((((nt_get_bf16(v_t4[i], e)) - ru1) * ru2) * (nt_get_bf16(v_t9[i], e))) + (nt_get_bf16(v_t10[i], e)));
      }
      if (live) nt_store<8>(p_y + ru3 + c0, nt_pack_bf16<4>(o_y));
    }
  }
}
