typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
#define NT_DEV __device__ __forceinline__
NT_DEV nt_u16 nt_bf16_of_f32(float x) { nt_u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
// two values in one register, the first in the low half
NT_DEV nt_u32 nt_bf16x2_of_f32(float lo, float hi) { nt_u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
NT_DEV nt_u32 nt_shared(const void* p) { return (nt_u32)__cvta_generic_to_shared(p); }
NT_DEV void nt_store16(nt_u32 to, nt_u32 a, nt_u32 b, nt_u32 c, nt_u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
typedef unsigned long long nt_u64;
NT_DEV void nt_barrier_init(nt_u32 barrier, nt_u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}
// after the inits, before other threads, the copy engine or the cluster use the barriers
NT_DEV void nt_barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// one arrival, and so many bytes more to wait for
NT_DEV void nt_barrier_expect(nt_u32 barrier, nt_u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
NT_DEV void nt_barrier_wait(nt_u32 barrier, nt_u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}
NT_DEV void nt_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
NT_DEV void nt_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// the address, for the accesses below, of the same place in another block of the cluster
NT_DEV nt_u32 nt_at_rank(nt_u32 address, nt_u32 rank) {
  nt_u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
// a store that counts as 4 bytes at a barrier of the block that it goes to
NT_DEV void nt_remote_send4(nt_u32 remote, nt_u32 v, nt_u32 remote_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               :: "r"(remote), "r"(v), "r"(remote_barrier) : "memory");
}
// contiguous bytes, a multiple of 16, both addresses aligned to 16
NT_DEV void nt_bulk_load(nt_u32 to, const void* from, nt_u32 bytes, nt_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
NT_DEV void nt_bulk_store(void* to, nt_u32 from, nt_u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes) : "memory");
}
// closes the group of the stores that this thread started since the last one
NT_DEV void nt_bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// all but the `pending` newest groups of this thread have read their shared memory
template <int pending> NT_DEV void nt_bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(pending) : "memory");
}
// all but the `pending` newest groups of this thread are done
template <int pending> NT_DEV void nt_bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" :: "n"(pending) : "memory");
}
// ordinary accesses to shared memory before it are seen by the copy engine and by wgmma after it
NT_DEV void nt_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
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
// 16 bytes of shared memory, read again by each pass: they are not kept in registers
NT_DEV nt_vec<16> nt_staged(nt_u32 from) {
  nt_vec<16> v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3]) : "r"(from));
  return v;
}
// B bytes of a row that the copy engine has brought
template <int B> NT_DEV nt_vec<B> nt_landed(nt_u32 from) {
  nt_vec<B> v;
  #pragma unroll
  for (int k = 0; k < B / 16; k++) {
    const nt_vec<16> w = nt_staged(from + 16 * k);
    v.x[4 * k] = w.x[0], v.x[4 * k + 1] = w.x[1], v.x[4 * k + 2] = w.x[2], v.x[4 * k + 3] = w.x[3];
  }
  return v;
}
// B bytes for the copy engine to take away
template <int B> NT_DEV void nt_leave(nt_u32 to, const nt_vec<B>& v) {
  #pragma unroll
  for (int k = 0; k < B / 16; k++) nt_store16(to + 16 * k, v.x[4 * k], v.x[4 * k + 1], v.x[4 * k + 2], v.x[4 * k + 3]);
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
// the same, counted at that block's barrier
template <class S> NT_DEV void nt_send_counted(S* to, const S& s, int rank, nt_u32 barrier) {
  constexpr int n = (sizeof(S) + 3) / 4;
  nt_u32 w[n] = {};
  memcpy(w, &s, sizeof(S));
  const nt_u32 remote = nt_at_rank(nt_shared(to), rank), counter = nt_at_rank(barrier, rank);
  #pragma unroll
  for (int k = 0; k < n; k++) nt_remote_send4(remote + 4 * k, w[k], counter);
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
// the same without a barrier of the cluster, which would wait for all stores to memory before it: each
// block's barrier `met` counts the states that arrive, and ends its phase of `parity`. `shared` and
// `met` may be used again after another such merge has ended.
template <int BLOCKS, int THREADS, class S, class F> NT_DEV S nt_reduce_counted(S s, F merge, S* shared, nt_u32 met, nt_u32 parity) {
  constexpr int warps = THREADS / 32;
  #pragma unroll
  for (int d = 16; d > 0; d /= 2) s = merge(s, nt_other(s, d));
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) nt_barrier_expect(met, BLOCKS * warps * ((sizeof(S) + 3) / 4 * 4));
  if (lane < BLOCKS) nt_send_counted(shared + (int)(blockIdx.x % BLOCKS) * warps + warp, s, lane, met);
  nt_barrier_wait(met, parity);
  return nt_merge_slots<BLOCKS * warps>(merge, shared);
}

// tile program ln  [n:4/13 c:2048/2048]  grid (n)
//     t1[n, c]: bf16 = read x[n, c]
//     r2[n] = sum[c](t1)
//     t4[n, c] = ((t1 - (r2 / 2048)) * (t1 - (r2 / 2048)))
//     r3[n] = sum[c](t4)
//     t5[c]: bf16 = read w[c]
//     t6[c]: bf16 = read b[c]
//     t0[n, c] = ((((t1 - (r2 / 2048)) * rsqrt(((r3 / 2048) + 1e-05))) * t5) + t6)
//     write y[n, c] = t0 as bf16
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64, 10) ln(
    const nt_u16* __restrict__ p_x, const nt_u16* __restrict__ p_w, const nt_u16* __restrict__ p_b, nt_u16* __restrict__ p_y) {
  const int t = threadIdx.x;
  const int first = (int)(blockIdx.x % 2) * 128;
  extern __shared__ __align__(16) nt_u8 staged[];
  __shared__ nt_u64 full[3];
  const nt_u32 ring = nt_shared(staged);
  const nt_u32 arrived = nt_shared(full);
  __shared__ nt_u64 counted[4];
  const nt_u32 met = nt_shared(counted);
  if (t == 0) {
    for (int n = 0; n < 3; n++) nt_barrier_init(arrived + 8 * n, 1);
    for (int n = 0; n < 4; n++) nt_barrier_init(met + 8 * n, 1);
    nt_barrier_init_done();
  }
  __syncthreads();
  nt_cluster_arrive();
  // the copy engine brings a row into a slot, and tells by its barrier
  auto fetch = [&](const int row, const int slot) {
    if (row >= 13) return;
    const int i_n = (int)(row);
    const nt_u32 barrier = arrived + 8 * slot, to = ring + slot * 2048;
    nt_barrier_expect(barrier, 2048);
    nt_bulk_load(to, p_x + (i_n * 2048) + first * 8, 2048, barrier);
  };
  nt_overlap();
  int row = (int)blockIdx.x / 2;
  if (t == 0) {
    for (int n = 0; n < 3; n++) fetch(row + n * 3, n);
  }
  nt_cluster_wait();
  nt_vec<16> v_t5[2];
  nt_vec<16> v_t6[2];
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int c0 = (first + t + i * 64) * 8;
    v_t5[i] = nt_load<16, true>(p_w + c0);
    v_t6[i] = nt_load<16, true>(p_b + c0);
  }
  int slot = 0, turn = 0;
  nt_u32 phase = 0;
  for (; row < 13; row += 3, turn++) {
    const int i_n = (int)(row);
    nt_barrier_wait(arrived + 8 * slot, phase);
    const nt_u32 at = ring + slot * 2048;
    nt_vec<16> v_t1[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c0 = (first + t + i * 64) * 8;
      v_t1[i] = nt_landed<16>(at + 16 * (t + i * 64));
    }
    float r2 = 0.0f;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c0 = (first + t + i * 64) * 8;
      #pragma unroll
      for (int e = 0; e < 8; e++) {
        r2 = r2 + (nt_get_bf16(v_t1[i], e));
      }
    }
    struct State0 { float r2; };
    auto merge0 = [&](const State0& a, const State0& b) {
      State0 c;
      c.r2 = a.r2 + b.r2;
      return c;
    };
    __shared__ State0 shared0[8];
    const State0 all0 = nt_reduce_counted<2, 64>(State0{r2}, merge0, shared0 + turn % 2 * 4, met + turn % 2 * 8, turn / 2 % 2);
    r2 = all0.r2;
    // the last row's results have left its slot, or will soon
    if (t == 0 && turn) {
      nt_bulk_wait_read<0>();
      fetch(row + 6, slot ? slot - 1 : 2);
    }
    float r3 = 0.0f;
    float kept0[16];
    const float ru0 = r2 * 0.00048828125f;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c0 = (first + t + i * 64) * 8;
      #pragma unroll
      for (int e = 0; e < 8; e++) {
        kept0[i * 8 + e] = ((nt_get_bf16(v_t1[i], e)) - ru0);
        r3 = r3 + (kept0[i * 8 + e] * kept0[i * 8 + e]);
      }
    }
    struct State1 { float r3; };
    auto merge1 = [&](const State1& a, const State1& b) {
      State1 c;
      c.r3 = a.r3 + b.r3;
      return c;
    };
    __shared__ State1 shared1[8];
    const State1 all1 = nt_reduce_counted<2, 64>(State1{r3}, merge1, shared1 + turn % 2 * 4, met + 16 + turn % 2 * 8, turn / 2 % 2);
    r3 = all1.r3;
    const float ru1 = rsqrtf(((r3 * 0.00048828125f) + 1e-05f));
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int c0 = (first + t + i * 64) * 8;
      float o_y[8];
      #pragma unroll
      for (int e = 0; e < 8; e++) {
        o_y[e] = (((kept0[i * 8 + e] * ru1) * (nt_get_bf16(v_t5[i], e))) + (nt_get_bf16(v_t6[i], e)));
      }
      nt_leave<16>(at + 16 * (t + i * 64), nt_pack_bf16<8>(o_y));
    }
    nt_async_fence();
    __syncthreads();
    if (t == 0) {
      const int ru3 = i_n * 2048;
      nt_bulk_store(p_y + ru3 + first * 8, at, 2048);
      nt_bulk_commit();
    }
    if (++slot == 3) slot = 0, phase ^= 1;
  }
  if (t == 0) nt_bulk_wait<0>();
}
