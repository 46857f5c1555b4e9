typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
NT_DEV float nt_inf() { return __uint_as_float(0x7f800000u); }
NT_DEV float nt_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
NT_DEV float nt_ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
NT_DEV float nt_f32_of_bf16(nt_u16 x) { return __uint_as_float((nt_u32)x << 16); }
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
template <int B> NT_DEV float nt_get_bf16(const nt_vec<B>& v, int e) { return __uint_as_float((e & 1) ? (v.x[e >> 1] & 0xffff0000u) : (v.x[e >> 1] << 16)); }
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

// tile program ce  [n:1/21 v:128/500]  grid (n)
//     for blocks of v:
//         t2[n, v]: bf16 = read x[n, v]
//         r1[n] = max[v](t2), r1_before before
//         t3[n] = exp((r1_before - r1))
//         t5[n, v] = exp((t2 - r1))
//         r4[n] = sum[v](t5) repaired by t3
//     t6[n]: i64 = read t[n]
//     t7[n]: bf16 = read x[n, t6]
//     t0[n] = ((r1 + log(r4)) - t7)
//     write loss[n] = t0 as f32
extern "C" __global__ void __launch_bounds__(128, 8) ce(
    const nt_u16* __restrict__ p_x, const nt_i64* __restrict__ p_t, float* __restrict__ p_loss) {
  nt_overlap();
  const int t = threadIdx.x % 64;
  const nt_i64 place = (nt_i64)(blockIdx.x) * 2 + threadIdx.x / 64;
  const bool live = place < 21LL;
  const nt_i64 row = live ? place : 20LL;
  const int i_n = (int)(row);
  float r1 = (-nt_inf());
  float r4 = 0.0f;
  nt_vec<8> v_t2[2];
  const int ru0 = i_n * 500;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 4;
    v_t2[i] = c0 < 500 ? nt_load<8, false>(p_x + ru0 + c0) : nt_zeros<8>();
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 4;
    if (c0 < 500) {
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        r1 = nt_max(r1, (nt_get_bf16(v_t2[i], e)));
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 64) * 4;
    if (c0 < 500) {
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        r4 = r4 + nt_ex2((((nt_get_bf16(v_t2[i], e)) - r1) * 1.442695f));
      }
    }
  }
  struct State0 { float r1; float r4; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r1 = nt_max(a.r1, b.r1);
    c.r4 = nt_repair(a.r4, (expf((a.r1 - c.r1)))) + nt_repair(b.r4, (expf((b.r1 - c.r1))));
    return c;
  };
  __shared__ State0 shared0[4];
  const State0 all0 = nt_reduce<64>(State0{r1, r4}, merge0, shared0);
  r1 = all0.r1;
  r4 = all0.r4;
  if (live && t == 0) p_loss[i_n] = ((r1 + (logf(r4))) - ((p_t[i_n]) >= 0 && (p_t[i_n]) < 500 ? nt_f32_of_bf16(p_x[(((nt_i64)(i_n * 500)) + (p_t[i_n]))]) : 0.0f));
}
