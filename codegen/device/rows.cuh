// Vectors of elements between global memory and registers, and reductions over the threads of a row.

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

// hides a register from the compiler, so that widened copies of it are not kept alive across passes
NT_DEV void nt_hide(nt_u32& x) { asm volatile("" : "+r"(x)); }

template <int B> NT_DEV void nt_opaque(nt_vec<B>& v) {
  #pragma unroll
  for (int k = 0; k < (B + 3) / 4; k++) nt_hide(v.x[k]);
}

template <int B> NT_DEV float nt_get_bf16(const nt_vec<B>& v, int e) { return __uint_as_float((e & 1) ? (v.x[e >> 1] & 0xffff0000u) : (v.x[e >> 1] << 16)); }

template <int B> NT_DEV float nt_get_f16(const nt_vec<B>& v, int e) { return nt_f32_of_f16((nt_u16)(v.x[e >> 1] >> (16 * (e & 1)))); }

template <int B> NT_DEV float nt_get_f32(const nt_vec<B>& v, int e) { return __uint_as_float(v.x[e]); }

template <int B> NT_DEV float nt_get_tf32(const nt_vec<B>& v, int e) { return __uint_as_float(v.x[e]); }

template <int B> NT_DEV float nt_get_f8e4m3(const nt_vec<B>& v, int e) { return nt_f32_of_f8e4m3((nt_u8)(v.x[e >> 2] >> (8 * (e & 3)))); }

template <int B> NT_DEV float nt_get_f8e5m2(const nt_vec<B>& v, int e) { return nt_f32_of_f8e5m2((nt_u8)(v.x[e >> 2] >> (8 * (e & 3)))); }

template <int B> NT_DEV int nt_get_i32(const nt_vec<B>& v, int e) { return (int)v.x[e]; }

template <int B> NT_DEV int nt_get_i8(const nt_vec<B>& v, int e) { return (int)(signed char)(v.x[e >> 2] >> (8 * (e & 3))); }

template <int B> NT_DEV bool nt_get_bool(const nt_vec<B>& v, int e) { return ((v.x[e >> 2] >> (8 * (e & 3))) & 0xffu) != 0; }

template <int B> NT_DEV nt_i64 nt_get_i64(const nt_vec<B>& v, int e) { return (nt_i64)(((unsigned long long)v.x[2 * e + 1] << 32) | v.x[2 * e]); }

template <int B> NT_DEV double nt_get_f64(const nt_vec<B>& v, int e) { return __longlong_as_double(nt_get_i64(v, e)); }

template <int B> NT_DEV void nt_put16(nt_vec<B>& v, int e, nt_u16 bits) { v.x[e >> 1] = (e & 1) ? (v.x[e >> 1] & 0xffffu) | ((nt_u32)bits << 16) : (v.x[e >> 1] & 0xffff0000u) | bits; }

template <int B> NT_DEV void nt_put8(nt_vec<B>& v, int e, nt_u8 bits) { v.x[e >> 2] = (v.x[e >> 2] & ~(0xffu << (8 * (e & 3)))) | ((nt_u32)bits << (8 * (e & 3))); }

template <int B> NT_DEV void nt_put64(nt_vec<B>& v, int e, nt_i64 bits) { v.x[2 * e] = (nt_u32)bits; v.x[2 * e + 1] = (nt_u32)((unsigned long long)bits >> 32); }

template <int V> NT_DEV nt_vec<2 * V> nt_pack_bf16(const float* f) {
  nt_vec<2 * V> r;
  #pragma unroll
  for (int k = 0; k < V / 2; k++) r.x[k] = nt_bf16x2_of_f32(f[2 * k], f[2 * k + 1]);
  if constexpr (V == 1) r.x[0] = nt_bf16_of_f32(f[0]);
  return r;
}

template <int V> NT_DEV nt_vec<2 * V> nt_pack_f16(const float* f) {
  nt_vec<2 * V> r;
  #pragma unroll
  for (int k = 0; k < V / 2; k++) r.x[k] = nt_f16x2_of_f32(f[2 * k], f[2 * k + 1]);
  if constexpr (V == 1) r.x[0] = nt_f16_of_f32(f[0]);
  return r;
}

template <int V> NT_DEV nt_vec<4 * V> nt_pack_f32(const float* f) {
  nt_vec<4 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) r.x[k] = __float_as_uint(f[k]);
  return r;
}

template <int V> NT_DEV nt_vec<4 * V> nt_pack_tf32(const float* f) {
  nt_vec<4 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) r.x[k] = __float_as_uint(nt_tf32_of_f32(f[k]));
  return r;
}

template <int V> NT_DEV nt_vec<4 * V> nt_pack_i32(const int* f) {
  nt_vec<4 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) r.x[k] = (nt_u32)f[k];
  return r;
}

template <int V> NT_DEV nt_vec<V> nt_pack_f8e4m3(const float* f) {
  nt_vec<V> r = nt_zeros<V>();
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put8(r, k, nt_f8e4m3_of_f32(f[k]));
  return r;
}

template <int V> NT_DEV nt_vec<V> nt_pack_f8e5m2(const float* f) {
  nt_vec<V> r = nt_zeros<V>();
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put8(r, k, nt_f8e5m2_of_f32(f[k]));
  return r;
}

template <int V> NT_DEV nt_vec<V> nt_pack_i8(const int* f) {
  nt_vec<V> r = nt_zeros<V>();
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put8(r, k, (nt_u8)f[k]);
  return r;
}

template <int V> NT_DEV nt_vec<V> nt_pack_bool(const bool* f) {
  nt_vec<V> r = nt_zeros<V>();
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put8(r, k, f[k] ? 1 : 0);
  return r;
}

template <int V> NT_DEV nt_vec<8 * V> nt_pack_i64(const nt_i64* f) {
  nt_vec<8 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put64(r, k, f[k]);
  return r;
}

template <int V> NT_DEV nt_vec<8 * V> nt_pack_f64(const double* f) {
  nt_vec<8 * V> r;
  #pragma unroll
  for (int k = 0; k < V; k++) nt_put64(r, k, __double_as_longlong(f[k]));
  return r;
}

// whether x is to replace v as the greatest (least) so far; a NaN is extreme, and the first one stays
template <class T> NT_DEV bool nt_above(T x, T v) { return (x > v || x != x) && v == v; }

template <class T> NT_DEV bool nt_below(T x, T v) { return (x < v || x != x) && v == v; }

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

// writes a plain struct to the same place in another block of the cluster
template <class S> NT_DEV void nt_send(S* to, const S& s, int rank) {
  constexpr int n = (sizeof(S) + 3) / 4;
  nt_u32 w[n] = {};
  memcpy(w, &s, sizeof(S));
  const nt_u32 remote = nt_at_rank(nt_shared(to), rank);
  #pragma unroll
  for (int k = 0; k < n; k++) nt_remote_store4(remote + 4 * k, w[k]);
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
