typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
NT_DEV float nt_inf() { return __uint_as_float(0x7f800000u); }
NT_DEV float nt_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
NT_DEV float nt_ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
// what was summed so far, brought to a new reference; a factor of 0 drops it, NaN included
NT_DEV float nt_repair(float sum, float factor) { return factor == 0.f ? 0.f : sum * factor; }
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
template <int B> NT_DEV float nt_get_f32(const nt_vec<B>& v, int e) { return __uint_as_float(v.x[e]); }
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

// tile program weighted  [n:2/6 c:32/170]  grid (n)
//     for blocks of c:
//         t2[n, c] = read x[n, c]
//         r1[n] = max[c](t2), r1_before before
//         t3[n] = exp((r1_before - r1))
//         t6[n, c] = exp((t2 - r1))
//         t7[n, c] = read y[n, c]
//         t5[n, c] = (t6 * t7)
//         r4[n] = sum[c](t5) repaired by t3, r4_before before
//         r8[n] = sum[c](t6) repaired by t3, r8_before before
//         t9[n] = where((r8_before == 0), 0, ((t3 * r8_before) * (((r4_before / r8_before) - (r4 / r8)) * ((r4_before / r8_before) - (r4 / r8)))))
//         t11[n, c] = (t6 * ((t7 - (r4 / r8)) * (t7 - (r4 / r8))))
//         r10[n] = sum[c](t11) repaired by t3 moved by t9
//     t0[n] = (r4 / r8)
//     write mean[n] = t0 as f32
//     t12[n] = (r10 / r8)
//     write spread[n] = t12 as f32
extern "C" __global__ void __launch_bounds__(128, 8) weighted(
    const float* __restrict__ p_x, const float* __restrict__ p_y, float* __restrict__ p_mean, float* __restrict__ p_spread) {
  nt_overlap();
  const int t = threadIdx.x % 64;
  const nt_i64 place = (nt_i64)(blockIdx.x) * 2 + threadIdx.x / 64;
  const bool live = place < 6LL;
  const nt_i64 row = live ? place : 5LL;
  const int i_n = (int)(row);
  float r1 = (-nt_inf());
  float r4 = 0.0f;
  float r8 = 0.0f;
  float r10 = 0.0f;
  nt_vec<8> v_t2[2];
  nt_vec<8> v_t7[2];
  const int ru0 = i_n * 170;
  const int ru1 = i_n * 170;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 2;
    v_t2[i] = c0 < 170 ? nt_load<8, false>(p_x + ru0 + c0) : nt_zeros<8>();
    v_t7[i] = c0 < 170 ? nt_load<8, false>(p_y + ru1 + c0) : nt_zeros<8>();
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 2;
    if (c0 < 170) {
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        r1 = nt_max(r1, (nt_get_f32(v_t2[i], e)));
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 2;
    if (c0 < 170) {
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        r4 = r4 + ((expf(((nt_get_f32(v_t2[i], e)) - r1))) * (nt_get_f32(v_t7[i], e)));
        r8 = r8 + nt_ex2((((nt_get_f32(v_t2[i], e)) - r1) * 1.442695f));
      }
    }
  }
  const float ck0 = r4 / r8;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 2;
    if (c0 < 170) {
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        const float el0 = (nt_get_f32(v_t7[i], e)) - ck0;
        r10 = r10 + ((expf(((nt_get_f32(v_t2[i], e)) - r1))) * (el0 * el0));
      }
    }
  }
  struct State0 { float r1; float r4; float r8; float r10; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r1 = nt_max(a.r1, b.r1);
    c.r4 = nt_repair(a.r4, (expf((a.r1 - c.r1)))) + nt_repair(b.r4, (expf((b.r1 - c.r1))));
    c.r8 = nt_repair(a.r8, (expf((a.r1 - c.r1)))) + nt_repair(b.r8, (expf((b.r1 - c.r1))));
    const float mg0 = (a.r4 / a.r8) - (c.r4 / c.r8);
    const float mg1 = (b.r4 / b.r8) - (c.r4 / c.r8);
    c.r10 = (nt_repair(a.r10, (expf((a.r1 - c.r1)))) + ((a.r8 == 0.0f) ? 0.0f : (((expf((a.r1 - c.r1))) * a.r8) * (mg0 * mg0)))) + (nt_repair(b.r10, (expf((b.r1 - c.r1)))) + ((b.r8 == 0.0f) ? 0.0f : (((expf((b.r1 - c.r1))) * b.r8) * (mg1 * mg1))));
    return c;
  };
  __shared__ State0 shared0[4];
  const State0 all0 = nt_reduce<64>(State0{r1, r4, r8, r10}, merge0, shared0);
  r1 = all0.r1;
  r4 = all0.r4;
  r8 = all0.r8;
  r10 = all0.r10;
  if (live && t == 0) p_mean[i_n] = (r4 / r8);
  if (live && t == 0) p_spread[i_n] = (r10 / r8);
}
