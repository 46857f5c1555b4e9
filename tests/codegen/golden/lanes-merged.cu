typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
NT_DEV float nt_inf() { return __uint_as_float(0x7f800000u); }
NT_DEV float nt_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
template <class T> NT_DEV T nt_min_int(T a, T b) { return a < b ? a : b; }
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
template <int B> NT_DEV float nt_get_f32(const nt_vec<B>& v, int e) { return __uint_as_float(v.x[e]); }
template <int V> NT_DEV nt_vec<2 * V> nt_pack_bf16(const float* f) {
  nt_vec<2 * V> r;
  #pragma unroll
  for (int k = 0; k < V / 2; k++) r.x[k] = nt_bf16x2_of_f32(f[2 * k], f[2 * k + 1]);
  if constexpr (V == 1) r.x[0] = nt_bf16_of_f32(f[0]);
  return r;
}
// partial states of GROUPS groups of LANES threads merged in shared memory, which has a slot for each
// thread and is used once; every group gets the results of its lanes.
template <int GROUPS, int LANES, class S, class F> NT_DEV S nt_meet(S s, F merge, S* shared) {
  shared[threadIdx.x] = s;
  #pragma unroll
  for (int n = GROUPS / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n * LANES) {
      s = merge(s, shared[threadIdx.x + n * LANES]);
      shared[threadIdx.x] = s;
    }
  }
  __syncthreads();
  return shared[threadIdx.x % LANES];
}

// tile program merged  [n:1/5 e:32/32 p:9/9]  grid (n, e)
//     t3[n, p] = read top[n, p]
//     r4[n] = max[p](t3)
//     t5[n, e, p] = read part[n, p, e]
//     t2[n, e, p] = where((exp((t3 - r4)) == 0), 0, (t5 * exp((t3 - r4))))
//     r1[n, e] = sum[p](t2)
//     t8[n, p] = read weight[n, p]
//     t7[n, p] = where((exp((t3 - r4)) == 0), 0, (t8 * exp((t3 - r4))))
//     r6[n] = sum[p](t7)
//     t0[n, e] = (r1 / r6)
//     write o[n, e] = t0 as bf16
//     t9[n] = (r4 + log(r6))
//     write lse[n] = t9 as f32
extern "C" __global__ void __launch_bounds__(256, 4) merged(
    const float* __restrict__ p_top, const float* __restrict__ p_part, const float* __restrict__ p_weight, nt_u16* __restrict__ p_o, float* __restrict__ p_lse) {
  nt_overlap();
  const int group = threadIdx.x / 64;
  const nt_i64 place = (nt_i64)blockIdx.x * 64 + threadIdx.x % 64;
  const bool live = place < 160LL;
  const nt_i64 row = live ? place : 159LL;
  const int lane0 = (int)(row % 32);
  const int i_n = (int)(row / 32);
  float r4 = (-nt_inf());
  float v_t3[3];
  const int ru0 = i_n * 9;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int i_p = nt_min_int(group + i * 4, 8);
    v_t3[i] = p_top[(ru0 + i_p)];
  }
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int i_p = group + i * 4;
    if (i_p < 9) {
      r4 = nt_max(r4, v_t3[i]);
    }
  }
  struct State0 { float r4; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r4 = nt_max(a.r4, b.r4);
    return c;
  };
  __shared__ State0 shared0[256];
  State0 all0;
  all0.r4 = r4;
  all0 = nt_meet<4, 64>(all0, merge0, shared0);
  r4 = all0.r4;
  float r1 = 0.0f;
  float r6 = 0.0f;
  nt_vec<4> v_t5[3];
  float v_t8[3];
  const int ru1 = i_n * 288;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int i_p = nt_min_int(group + i * 4, 8);
    v_t5[i] = nt_load<4, false>(p_part + (ru1 + (i_p * 32)) + lane0);
    v_t8[i] = p_weight[(ru0 + i_p)];
  }
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    const int i_p = group + i * 4;
    if (i_p < 9) {
      const float ps0 = expf((v_t3[i] - r4));
      const bool ps1 = ps0 == 0.0f;
      r6 = r6 + (ps1 ? 0.0f : (v_t8[i] * ps0));
      r1 = r1 + (ps1 ? 0.0f : ((nt_get_f32(v_t5[i], 0)) * ps0));
    }
  }
  struct State1 { float r1; float r6; };
  auto merge1 = [&](const State1& a, const State1& b) {
    State1 c;
    c.r1 = a.r1 + b.r1;
    c.r6 = a.r6 + b.r6;
    return c;
  };
  __shared__ State1 shared1[256];
  State1 all1;
  all1.r1 = r1;
  all1.r6 = r6;
  all1 = nt_meet<4, 64>(all1, merge1, shared1);
  r1 = all1.r1;
  r6 = all1.r6;
  const int ru2 = i_n * 32;
  if (group == 0) {
    float o_o[1];
    o_o[0] = (r1 / r6);
    if (live) nt_store<2>(p_o + ru2 + lane0, nt_pack_bf16<1>(o_o));
  }
  if (group == 0) {
    if (live) p_lse[i_n] = (r4 + (logf(r6)));
  }
}
