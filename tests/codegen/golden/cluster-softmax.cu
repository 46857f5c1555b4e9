typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
#define NT_DEV __device__ __forceinline__
NT_DEV float nt_inf() { return __uint_as_float(0x7f800000u); }
NT_DEV float nt_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
NT_DEV float nt_ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
// at most 2 ulp over the whole range
NT_DEV float nt_div(float a, float b) { float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
NT_DEV nt_u16 nt_bf16_of_f32(float x) { nt_u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
// two values in one register, the first in the low half
NT_DEV nt_u32 nt_bf16x2_of_f32(float lo, float hi) { nt_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
// what was summed so far, brought to a new reference; a factor of 0 drops it, NaN included
NT_DEV float nt_repair(float sum, float factor) { return factor == 0.f ? 0.f : sum * factor; }
NT_DEV nt_u32 nt_shared(const void* p) { return (nt_u32)__cvta_generic_to_shared(p); }
NT_DEV void nt_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
NT_DEV void nt_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// the address, for the accesses below, of the same place in another block of the cluster
NT_DEV nt_u32 nt_at_rank(nt_u32 address, nt_u32 rank) {
  nt_u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
NT_DEV void nt_remote_store4(nt_u32 remote, nt_u32 v) {
  asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(remote), "r"(v) : "memory");
}
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
// hides a register from the compiler, so that widened copies of it are not kept alive across passes
NT_DEV void nt_hide(nt_u32& x) { asm volatile("" : "+r"(x)); }
template <int B> NT_DEV void nt_opaque(nt_vec<B>& v) {
  #pragma unroll
  for (int k = 0; k < (B + 3) / 4; k++) nt_hide(v.x[k]);
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
// writes a plain struct to the same place in another block of the cluster
template <class S> NT_DEV void nt_send(S* to, const S& s, int rank) {
  constexpr int n = (sizeof(S) + 3) / 4;
  nt_u32 w[n] = {};
  memcpy(w, &s, sizeof(S));
  const nt_u32 remote = nt_at_rank(nt_shared(to), rank);
  #pragma unroll
  for (int k = 0; k < n; k++) nt_remote_store4(remote + 4 * k, w[k]);
}
// the states of a cluster's warps merged, in the same order in each block
template <int SLOTS, class S, class F> NT_DEV S nt_merge_slots(F merge, const S* shared) {
  constexpr int width = SLOTS >= 32 ? 32 : SLOTS >= 16 ? 16 : SLOTS >= 8 ? 8 : SLOTS >= 4 ? 4 : 2;
  const int lane = threadIdx.x & 31;
  S s = shared[lane % width];
  #pragma unroll
  for (int k = width; k < SLOTS; k += width) {
    if (k + width <= SLOTS || k + lane % width < SLOTS) s = merge(s, shared[k + lane % width]);
  }
  #pragma unroll
  for (int d = width / 2; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  return s;
}
// partial states of all threads of the BLOCKS blocks of a cluster merged; every thread gets the
// result. `shared` has a slot for each warp of the cluster, and is used once. All blocks have started
// before the first use, and none of them ends between uses.
template <int BLOCKS, int THREADS, class S, class F> NT_DEV S nt_reduce_cluster(S s, F merge, S* shared) {
  constexpr int warps = THREADS / 32;
  #pragma unroll
  for (int d = 16; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (lane < BLOCKS) nt_send(shared + (int)(blockIdx.x % BLOCKS) * warps + warp, s, lane);
  nt_cluster_arrive();
  nt_cluster_wait();
  return nt_merge_slots<BLOCKS * warps>(merge, shared);
}

// tile program softonline  [n:4/4096 c:64/65536]  grid (n)
//     for blocks of c:
//         t3[n, c]: bf16 = read x[n, c]
//         r2[n] = max[c](t3), r2_before before
//         t4[n] = exp((r2_before - r2))
//         t6[n, c] = exp((t3 - r2))
//         r5[n] = sum[c](t6) repaired by t4
//     for blocks of c:
//         t1[n, c]: bf16 = read x[n, c]
//         t0[n, c] = (exp((t1 - r2)) / r5)
//         write y[n, c] = t0 as bf16
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256, 3) softonline(
    const nt_u16* __restrict__ p_x, nt_u16* __restrict__ p_y) {
  nt_overlap();
  nt_cluster_arrive();
  const int t = threadIdx.x % 256;
  const nt_i64 place = (nt_i64)(blockIdx.x / 4) + threadIdx.x / 256;
  const bool live = place < 4096LL;
  const nt_i64 row = live ? place : 4095LL;
  const int first = (int)(blockIdx.x % 4) * 2048;
  const int i_n = (int)(row);
  float r2 = (-nt_inf());
  float r5 = 0.0f;
  nt_vec<16> v_t3[8];
  const int ru0 = i_n * 65536;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int c0 = (first + t + i * 256) * 8;
    v_t3[i] = nt_load<16, false>(p_x + ru0 + c0);
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int c0 = (first + t + i * 256) * 8;
    nt_opaque(v_t3[i]);
    #pragma unroll
    for (int e = 0; e < 8; e++) {
      r2 = nt_max(r2, (nt_get_bf16(v_t3[i], e)));
    }
  }
  const float ck0 = r2 * 1.442695f;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int c0 = (first + t + i * 256) * 8;
    nt_opaque(v_t3[i]);
    #pragma unroll
    for (int e = 0; e < 8; e++) {
      r5 = r5 + (nt_ex2((((nt_get_bf16(v_t3[i], e)) * 1.442695f) - ck0)));
    }
  }
  struct State0 { float r2; float r5; };
  auto merge0 = [&](const State0& a, const State0& b) {
    State0 c;
    c.r2 = nt_max(a.r2, b.r2);
    c.r5 = nt_repair(a.r5, (nt_ex2(((a.r2 - c.r2) * 1.442695f)))) + nt_repair(b.r5, (nt_ex2(((b.r2 - c.r2) * 1.442695f))));
    return c;
  };
  __shared__ State0 shared0[32];
  nt_cluster_wait();
  const State0 all0 = nt_reduce_cluster<4, 256>(State0{r2, r5}, merge0, shared0);
  r2 = all0.r2;
  r5 = all0.r5;
  const float ru1 = r2 * 1.442695f;
  const float ru2 = nt_div(1.0f, r5);
  const int ru3 = i_n * 65536;
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int c0 = (first + t + i * 256) * 8;
    nt_opaque(v_t3[i]);
    float o_y[8];
    #pragma unroll
    for (int e = 0; e < 8; e++) {
      o_y[e] = ((nt_ex2((((nt_get_bf16(v_t3[i], e)) * 1.442695f) - ru1))) * ru2);
    }
    if (live) nt_store<16>(p_y + ru3 + c0, nt_pack_bf16<8>(o_y));
  }
}
