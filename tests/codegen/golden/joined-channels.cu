typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
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

// tile program channels  [c:1/6 n_h_w:160/160]  grid (c)
//     t4[c, n_h_w]: bf16 = read x[(n_h_w // 32), c, ((n_h_w % 32) // 8), ((n_h_w % 32) % 8)]
//     r1[c] = sum[n_h_w](t4)
//     t0[c] = (r1 / 160)
//     write mu[c] = t0 as f32
//     t9[c, n_h_w] = ((t4 - t0) * (t4 - t0))
//     r6[c] = sum[n_h_w](t9)
//     t5[c] = (r6 / 160)
//     write var[c] = t5 as f32
extern "C" __global__ void __launch_bounds__(128, 8) channels(
    const nt_u16* __restrict__ p_x, float* __restrict__ p_mu, float* __restrict__ p_var) {
  nt_overlap();
  const int t = threadIdx.x % 16;
  const nt_i64 place = (nt_i64)(blockIdx.x) * 8 + threadIdx.x / 16;
  const bool live = place < 6LL;
  const nt_i64 row = live ? place : 5LL;
  const int i_c = (int)(row);
  float r1 = 0.0f;
  nt_vec<16> v_t4[2];
  const int ru0 = i_c * 32;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 16) * 8;
    v_t4[i] = c0 < 160 ? nt_load<16, false>(p_x + ((((c0 / 32) * 192) + ru0) + (c0 % 32))) : nt_zeros<16>();
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 16) * 8;
    if (c0 < 160) {
      #pragma unroll
      for (int e = 0; e < 8; e++) {
        r1 = r1 + (nt_get_bf16(v_t4[i], e));
      }
    }
  }
  struct State0 { float r1; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r1 = a.r1 + b.r1;
    return c;
  };
  __shared__ State0 shared0[4];
  const State0 all0 = nt_reduce<16>(State0{r1}, merge0, shared0);
  r1 = all0.r1;
  if (live && t == 0) p_mu[i_c] = (r1 / 160.0f);
  float r6 = 0.0f;
  const float ru1 = r1 / 160.0f;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (t + i * 16) * 8;
    if (c0 < 160) {
      #pragma unroll
      for (int e = 0; e < 8; e++) {
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
  __shared__ State1 shared1[4];
  const State1 all1 = nt_reduce<16>(State1{r6}, merge1, shared1);
  r6 = all1.r6;
  if (live && t == 0) p_var[i_c] = (r6 / 160.0f);
}
