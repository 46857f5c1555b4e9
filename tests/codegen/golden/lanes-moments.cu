typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
template <class T> NT_DEV T nt_min_int(T a, T b) { return a < b ? a : b; }
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
template <int B> NT_DEV float nt_get_bf16(const nt_vec<B>& v, int e) { return __uint_as_float((e & 1) ? (v.x[e >> 1] & 0xffff0000u) : (v.x[e >> 1] << 16)); }
template <int V> NT_DEV nt_vec<4 * V> nt_pack_f32(const float* f) {
  nt_vec<4 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) r.x[k] = __float_as_uint(f[k]);
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

// tile program middlevar  [n:1/2 e:32/64 c:16/150]  grid (n, e)
//     t4[]: i32 = 1
//     for blocks of c:
//         t2[n, e, c]: bf16 = read x[n, c, e]
//         r1[n, e] = sum[c](t2), r1_before before
//         r3[]: i32 = sum[c](t4), r3_before before
//         t5[n, e] = where((r3_before == 0), 0, (r3_before * (((r1_before / r3_before) - (r1 / r3)) * ((r1_before / r3_before) - (r1 / r3)))))
//         t7[n, e, c] = ((t2 - (r1 / r3)) * (t2 - (r1 / r3)))
//         r6[n, e] = sum[c](t7) moved by t5
//     t0[n, e] = (r1 / 150)
//     write mu[n, e] = t0 as f32
//     t8[n, e] = (r6 / 150)
//     write var[e, n] = t8 as f32
extern "C" __global__ void __launch_bounds__(512, 2) middlevar(
    const nt_u16* __restrict__ p_x, float* __restrict__ p_mu, float* __restrict__ p_var) {
  nt_overlap();
  const int group = threadIdx.x / 32;
  const nt_i64 place = (nt_i64)blockIdx.x * 32 + threadIdx.x % 32;
  const bool live = place < 64LL;
  const nt_i64 row = live ? place : 63LL;
  const int lane0 = (int)(row % 32) * 2;
  const int i_n = (int)(row / 32);
  float r1[2];
  int r3 = 0;
  float r6[2];
  #pragma unroll
  for (int e = 0; e < 2; e++) {
    r1[e] = 0.0f;
    r6[e] = 0.0f;
  }
  for (int first = 0; first < 150; first += 80) {
    nt_vec<4> v_t2[5];
    const int ru0 = i_n * 9600;
    #pragma unroll
    for (int i = 0; i < 5; i++) {
      const int i_c = nt_min_int(first + group + i * 16, 149);
      v_t2[i] = nt_load<4, false>(p_x + (ru0 + (i_c * 64)) + lane0);
    }
    float r1_before[2];
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      r1_before[e] = r1[e];
    }
    const int r3_before = r3;
    #pragma unroll
    for (int i = 0; i < 5; i++) {
      const int i_c = first + group + i * 16;
      if (i_c < 150) {
        r3 = r3 + 1;
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          r1[e] = r1[e] + (nt_get_bf16(v_t2[i], e));
        }
      }
    }
    const bool ck0 = r3_before == 0;
    float ln0[2];
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      ln0[e] = (r1_before[e] / ((float)r3_before)) - (r1[e] / ((float)r3));
    }
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      r6[e] = (r6[e] + (ck0 ? 0.0f : (((float)r3_before) * (ln0[e] * ln0[e]))));
    }
    float ln1[2];
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      ln1[e] = r1[e] / ((float)r3);
    }
    #pragma unroll
    for (int i = 0; i < 5; i++) {
      const int i_c = first + group + i * 16;
      if (i_c < 150) {
        #pragma unroll
        for (int e = 0; e < 2; e++) {
          const float el0 = (nt_get_bf16(v_t2[i], e)) - ln1[e];
          r6[e] = r6[e] + (el0 * el0);
        }
      }
    }
  }
  struct State0 { float r1[2]; int r3; float r6[2]; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r3 = a.r3 + b.r3;
    const bool mg0 = a.r3 == 0;
    const bool mg1 = b.r3 == 0;
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      c.r1[e] = a.r1[e] + b.r1[e];
      const float ml0 = (a.r1[e] / ((float)a.r3)) - (c.r1[e] / ((float)c.r3));
      const float ml1 = (b.r1[e] / ((float)b.r3)) - (c.r1[e] / ((float)c.r3));
      c.r6[e] = (a.r6[e] + (mg0 ? 0.0f : (((float)a.r3) * (ml0 * ml0)))) + (b.r6[e] + (mg1 ? 0.0f : (((float)b.r3) * (ml1 * ml1))));
    }
    return c;
  };
  __shared__ State0 shared0[512];
  State0 all0;
  all0.r3 = r3;
  #pragma unroll
  for (int e = 0; e < 2; e++) {
    all0.r1[e] = r1[e];
    all0.r6[e] = r6[e];
  }
  all0 = nt_meet<16, 32>(all0, merge0, shared0);
  r3 = all0.r3;
  #pragma unroll
  for (int e = 0; e < 2; e++) {
    r1[e] = all0.r1[e];
    r6[e] = all0.r6[e];
  }
  const int ru1 = i_n * 64;
  if (group == 0) {
    float o_mu[2];
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      o_mu[e] = (r1[e] / ((float)150));
    }
    if (live) nt_store<8>(p_mu + ru1 + lane0, nt_pack_f32<2>(o_mu));
  }
  if (group == 0) {
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      if (live) p_var[(((lane0 + e) * 2) + i_n)] = (r6[e] / ((float)150));
    }
  }
}
