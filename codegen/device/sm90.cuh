// Hopper (sm_90a): transaction barriers, tensor copies by the copy engine (TMA), warpgroup products.
// Shared addresses are 32-bit (nt_shared of copy.cuh); barriers are 8 bytes, aligned to 8.
// The instructions are described in the PTX ISA, chapters "mbarrier", "cp.async.bulk" and "wgmma".
// Blocks are separated by blank lines; a kernel receives the blocks that it needs (codegen/headers.py).

typedef unsigned long long nt_u64;

// floats of an array as operands of inline assembly
#define NT_F4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])

#define NT_F16(d, i) NT_F4(d, i), NT_F4(d, (i) + 4), NT_F4(d, (i) + 8), NT_F4(d, (i) + 12)

// words of an array as operands of inline assembly
#define NT_R4(d, i) "+r"(d[i]), "+r"(d[(i) + 1]), "+r"(d[(i) + 2]), "+r"(d[(i) + 3])

#define NT_R16(d, i) NT_R4(d, i), NT_R4(d, (i) + 4), NT_R4(d, (i) + 8), NT_R4(d, (i) + 12)

// a tensor map (CUtensorMap): 128 opaque bytes, a kernel's parameter by value
struct alignas(64) nt_map { nt_u64 opaque[16]; };

// -- barriers -------------------------------------------------------------------------------------
// A barrier's phase ends when `count` arrivals and all expected bytes are in. A wait for parity p
// returns once the phase of that parity has ended; before the first phase, parity 1 has.

NT_DEV void nt_barrier_init(nt_u32 barrier, nt_u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

// after the inits, before other threads, the copy engine or the cluster use the barriers
NT_DEV void nt_barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// one arrival, and so many bytes more to wait for
NT_DEV void nt_barrier_expect(nt_u32 barrier, nt_u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

NT_DEV void nt_barrier_arrive(nt_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// arrives at the same barrier of another block of the cluster
NT_DEV void nt_barrier_arrive_at(nt_u32 barrier, nt_u32 rank) {
  asm volatile("{\n.reg .b32 remote;\n"
               "mapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" :: "r"(barrier), "r"(rank) : "memory");
}

NT_DEV void nt_barrier_wait(nt_u32 barrier, nt_u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// the same, for a barrier at which other blocks of the cluster arrive after generic writes; slower
NT_DEV void nt_barrier_wait_cluster(nt_u32 barrier, nt_u32 parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\n"
               "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// whether the phase has ended, without waiting
NT_DEV bool nt_barrier_test(nt_u32 barrier, nt_u32 parity) {
  nt_u32 done;
  asm volatile("{\n.reg .pred done;\n"
               "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
               "selp.u32 %0, 1, 0, done;\n}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}

// named barriers of the block, 1 to 15 (0 is __syncthreads): `threads` is a multiple of 32
NT_DEV void nt_named_sync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

NT_DEV void nt_named_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// -- roles ----------------------------------------------------------------------------------------

// true in one lane of a converged warp
NT_DEV bool nt_elect() {
  nt_u32 chosen;
  asm volatile("{\n.reg .pred chosen;\n"
               "elect.sync _|chosen, 0xffffffff;\n"
               "selp.u32 %0, 1, 0, chosen;\n}" : "=r"(chosen));
  return chosen != 0;
}

// the same value in every lane, known as such to the compiler: descriptors stay in uniform registers
NT_DEV nt_u32 nt_uniform(nt_u32 x) { return __shfl_sync(0xffffffffu, x, 0); }

// registers a thread, a multiple of 8 from 24 to 256; all warps of a warpgroup run it
template <int registers> NT_DEV void nt_give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}

template <int registers> NT_DEV void nt_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}

// -- clusters -------------------------------------------------------------------------------------

NT_DEV nt_u32 nt_cluster_rank() {
  nt_u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

NT_DEV void nt_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

NT_DEV void nt_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// the address, for the accesses below, of the same place in another block of the cluster
NT_DEV nt_u32 nt_at_rank(nt_u32 address, nt_u32 rank) {
  nt_u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

NT_DEV nt_u32 nt_remote_load4(nt_u32 remote) {
  nt_u32 v;
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(v) : "r"(remote) : "memory");
  return v;
}

NT_DEV void nt_remote_store4(nt_u32 remote, nt_u32 v) {
  asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(remote), "r"(v) : "memory");
}

// a store that counts as 4 bytes at a barrier of the block that it goes to
NT_DEV void nt_remote_send4(nt_u32 remote, nt_u32 v, nt_u32 remote_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               :: "r"(remote), "r"(v), "r"(remote_barrier) : "memory");
}

// -- the copy engine ------------------------------------------------------------------------------
// Coordinates count elements, the fastest axis first. A box outside the tensor still counts whole.

NT_DEV void nt_map_prefetch(const nt_map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }

NT_DEV void nt_tma_load_1d(nt_u32 to, const nt_map* map, nt_u32 barrier, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(c0) : "memory");
}

NT_DEV void nt_tma_load_2d(nt_u32 to, const nt_map* map, nt_u32 barrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(c0), "r"(c1) : "memory");
}

NT_DEV void nt_tma_load_3d(nt_u32 to, const nt_map* map, nt_u32 barrier, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

NT_DEV void nt_tma_load_4d(nt_u32 to, const nt_map* map, nt_u32 barrier, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

NT_DEV void nt_tma_load_5d(nt_u32 to, const nt_map* map, nt_u32 barrier, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               :: "r"(to), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

// the same box into every block of the cluster whose bit is set in `ranks`, at the same place, counted
// at each one's barrier
NT_DEV void nt_tma_spread_1d(nt_u32 to, const nt_map* map, nt_u32 barrier, nt_u16 ranks, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"(ranks), "r"(c0) : "memory");
}

NT_DEV void nt_tma_spread_2d(nt_u32 to, const nt_map* map, nt_u32 barrier, nt_u16 ranks, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"(ranks), "r"(c0), "r"(c1) : "memory");
}

NT_DEV void nt_tma_spread_3d(nt_u32 to, const nt_map* map, nt_u32 barrier, nt_u16 ranks, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"(ranks), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

NT_DEV void nt_tma_spread_4d(nt_u32 to, const nt_map* map, nt_u32 barrier, nt_u16 ranks, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"(ranks), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

NT_DEV void nt_tma_spread_5d(nt_u32 to, const nt_map* map, nt_u32 barrier, nt_u16 ranks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
               :: "r"(to), "l"(map), "r"(barrier), "h"(ranks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

// contiguous bytes, a multiple of 16, both addresses aligned to 16
NT_DEV void nt_bulk_load(nt_u32 to, const void* from, nt_u32 bytes, nt_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

NT_DEV void nt_bulk_store(void* to, nt_u32 from, nt_u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes) : "memory");
}

NT_DEV void nt_tma_store_1d(const nt_map* map, nt_u32 from, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];"
               :: "l"(map), "r"(from), "r"(c0) : "memory");
}

NT_DEV void nt_tma_store_2d(const nt_map* map, nt_u32 from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               :: "l"(map), "r"(from), "r"(c0), "r"(c1) : "memory");
}

NT_DEV void nt_tma_store_3d(const nt_map* map, nt_u32 from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :: "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

NT_DEV void nt_tma_store_4d(const nt_map* map, nt_u32 from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               :: "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

NT_DEV void nt_tma_store_5d(const nt_map* map, nt_u32 from, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               :: "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
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

// -- warpgroup products ---------------------------------------------------------------------------
// A tile is a column of 8-row groups; a row has `swizzle` bytes (128, 64, 32), and its 16-byte chunks
// are permuted as the copy engine does it, which needs bases aligned to 8 * swizzle. Row-wise along
// the depth (K-major): `leading` is not used, 32 bytes further a step; tiles of the next `swizzle`
// bytes of depth are separate. Row-wise along the rows or columns of the product (MN-major, 16-bit
// operands): a step of 16 is 16 * swizzle bytes further, `leading` the distance between tiles of the
// next `swizzle` bytes.
template <int swizzle> NT_DEV nt_u64 nt_descriptor(nt_u32 at, nt_u32 leading = 16) {
  static_assert(swizzle == 32 || swizzle == 64 || swizzle == 128, "no such swizzle");
  constexpr nt_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return (nt_u64)((at & 0x3ffffu) >> 4) | ((nt_u64)((leading & 0x3ffffu) >> 4) << 16) | ((nt_u64)(8 * swizzle >> 4) << 32) | (mode << 62);
}

// orders this warpgroup's registers and earlier products before the products that follow
NT_DEV void nt_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

NT_DEV void nt_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// -- pairs of 8-bit floats as f16, which holds them ------------------------------------------------

NT_DEV nt_u32 nt_f16x2_of_f8e4m3x2(nt_u16 pair) {
  nt_u32 v;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v) : "h"(pair));
  return v;
}

NT_DEV nt_u32 nt_f16x2_of_f8e5m2x2(nt_u16 pair) {
  nt_u32 v;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(v) : "h"(pair));
  return v;
}

// Ties a value to this point of the program: ptxas otherwise moves the next wait for wgmma above the
// value's computation. The store happens for one pattern of bits only, a NaN that no arithmetic makes
// (a test such as x < 0 would not do: ptxas knows that sums of exponentials are not negative).
// `scratch` is a shared word for nothing else, so that a store taken by chance does no harm.
NT_DEV void nt_pin_bits(nt_u32 scratch, nt_u32 bits) {
  asm volatile("{\n.reg .pred same;\n"
               "setp.eq.u32 same, %1, 0xffbadbad;\n"
               "@same st.volatile.shared.u32 [%0], %1;\n}" :: "r"(scratch), "r"(bits) : "memory");
}

NT_DEV void nt_pin(nt_u32 scratch, float x) { nt_pin_bits(scratch, __float_as_uint(x)); }

// what was read into a register has been asked for here, and not where it is used
NT_DEV void nt_hold(nt_u32& x) { asm volatile("" : "+r"(x)); }

// four words: among the four threads of a row, word c of thread t for word t of thread c
NT_DEV void nt_exchange(nt_u32* w) {
#pragma unroll
  for (int s = 1; s < 4; s *= 2) {
    const bool high = (threadIdx.x & s) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & s) continue;
      const nt_u32 got = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + s], s);
      if (high) w[i] = got; else w[i + s] = got;
    }
  }
}

// four 8 x 8 matrices of 16-bit elements from registers to shared memory; lane l gives the address
// of row l % 8 of matrix l / 8
NT_DEV void nt_put_fragments(nt_u32 to, nt_u32 a, nt_u32 b, nt_u32 c, nt_u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

NT_DEV void nt_put_fragments_transposed(nt_u32 to, nt_u32 a, nt_u32 b, nt_u32 c, nt_u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

NT_DEV void nt_put_fragments2(nt_u32 to, nt_u32 a, nt_u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(to), "r"(a), "r"(b) : "memory");
}
