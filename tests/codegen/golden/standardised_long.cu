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
template <int V> NT_DEV nt_vec<4 * V> nt_pack_f32(const float* f) {
  nt_vec<4 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) r.x[k] = __float_as_uint(f[k]);
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

// tile program standard  [n:2/2 c:64/40960]  grid (n)
//     t6[]: i32 = 1
//     for blocks of c:
//         t4[n, c] = read x[n, c]
//         r3[n] = sum[c](t4), r3_before before
//         r5[]: i32 = sum[c](t6), r5_before before
//         t7[n] = where((r5_before == 0), 0, (r5_before * (((r3_before / r5_before) - (r3 / r5)) * ((r3_before / r5_before) - (r3 / r5)))))
//         t9[n, c] = ((t4 - (r3 / r5)) * (t4 - (r3 / r5)))
//         r8[n] = sum[c](t9) moved by t7
//     t2[n] = (r3 / 40960)
//     t10[n] = rsqrt(((r8 / 40960) + 1e-05))
//     for blocks of c:
//         t1[n, c] = read x[n, c]
//         t11[c] = read w[c]
//         t12[c] = read b[c]
//         t0[n, c] = ((((t1 - t2) * t10) * t11) + t12)
//         write y[n, c] = t0 as f32
extern "C" __global__ void __launch_bounds__(512, 1) standard(
    const float* __restrict__ p_x, const float* __restrict__ p_w, const float* __restrict__ p_b, float* __restrict__ p_y) {
  nt_overlap();
  const int t = threadIdx.x % 512;
  const nt_i64 place = (nt_i64)(blockIdx.x) + threadIdx.x / 512;
  const bool live = place < 2LL;
  const nt_i64 row = live ? place : 1LL;
  const int i_n = (int)(row);
  float r3 = 0.0f;
  int r5 = 0;
  float r8 = 0.0f;
  for (int first = 0; first < 10240; first += 2048) {
    nt_vec<16> v_t4[4];
    const int ru0 = i_n * 40960;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c0 = (first + t + i * 512) * 4;
      v_t4[i] = nt_load<16, false>(p_x + ru0 + c0);
    }
    const float r3_before = r3;
    const int r5_before = r5;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c0 = (first + t + i * 512) * 4;
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        r3 = r3 + (nt_get_f32(v_t4[i], e));
        r5 = r5 + 1;
      }
    }
    const float ck0 = (r3_before / ((float)r5_before)) - (r3 / ((float)r5));
    r8 = (r8 + ((r5_before == 0) ? 0.0f : (((float)r5_before) * (ck0 * ck0))));
    const float ck1 = r3 / ((float)r5);
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c0 = (first + t + i * 512) * 4;
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        const float el0 = (nt_get_f32(v_t4[i], e)) - ck1;
        r8 = r8 + (el0 * el0);
      }
    }
  }
  struct State0 { float r3; int r5; float r8; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r3 = a.r3 + b.r3;
    c.r5 = a.r5 + b.r5;
    const float mg0 = (a.r3 / ((float)a.r5)) - (c.r3 / ((float)c.r5));
    const float mg1 = (b.r3 / ((float)b.r5)) - (c.r3 / ((float)c.r5));
    c.r8 = (a.r8 + ((a.r5 == 0) ? 0.0f : (((float)a.r5) * (mg0 * mg0)))) + (b.r8 + ((b.r5 == 0) ? 0.0f : (((float)b.r5) * (mg1 * mg1))));
    return c;
  };
  __shared__ State0 shared0[16];
  const State0 all0 = nt_reduce<512>(State0{r3, r5, r8}, merge0, shared0);
  r3 = all0.r3;
  r5 = all0.r5;
  r8 = all0.r8;
  for (int first = 0; first < 10240; first += 2048) {
    nt_vec<16> v_t4[4];
    const int ru1 = i_n * 40960;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c0 = (first + t + i * 512) * 4;
      v_t4[i] = nt_load<16, false>(p_x + ru1 + c0);
    }
    const float ru2 = r3 / ((float)40960);
    const float ru3 = rsqrtf(((r8 / ((float)40960)) + 1e-05f));
    const int ru4 = i_n * 40960;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c0 = (first + t + i * 512) * 4;
      const auto w_t11 = nt_load<16, true>(p_w + c0);
      const auto w_t12 = nt_load<16, true>(p_b + c0);
      float o_y[4];
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        o_y[e] = (((((nt_get_f32(v_t4[i], e)) - ru2) * ru3) * (nt_get_f32(w_t11, e))) + (nt_get_f32(w_t12, e)));
      }
      if (live) nt_store<16>(p_y + ru4 + c0, nt_pack_f32<4>(o_y));
    }
  }
}
