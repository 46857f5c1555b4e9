// Enough of CUDA to run a generated kernel on the CPU: every CUDA thread is a fiber, barriers and
// shuffles switch between them, and the PTX primitives have C++ bodies of the same meaning. The
// blocks of a cluster run side by side; each has shared memory of its own in the arena.
#include <ucontext.h>
#include <immintrin.h>
#include <cmath>
#include <cstring>
#include <cstdlib>
#include <cstdint>
#include <vector>

using std::memcpy;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct HostDim { int x, y, z; };
struct HostFiber { ucontext_t context; std::vector<char> stack; int thread; int rank; bool done; unsigned phase; };
struct HostBarrier { int arrived = 0; unsigned generation = 0; };

static std::vector<HostFiber> host_fibers;
static int host_current, host_live, host_first;
static int host_left[16];
static ucontext_t host_main;
static HostDim gridDim, blockDim;
static HostBarrier host_block[16], host_warp[16][32];
static struct { int arrived; unsigned phase; } host_cluster;
static uint32_t host_slots[16][32][32];
static void (*host_body)(void**);
static void** host_arguments;
enum { HOST_ARENA = 1 << 19, HOST_STATES = 1 << 16 };  // bytes of a block, of those for states
alignas(1024) static unsigned char host_arena[16][HOST_ARENA];

static int host_rank() { return host_fibers[host_current].rank; }
static unsigned char* host_dynamic() { return host_arena[host_rank()] + HOST_STATES; }
static HostDim host_thread() { return {host_fibers[host_current].thread, 0, 0}; }
static HostDim host_block_index() {
  const int b = host_first + host_rank();
  return {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
}
#define threadIdx host_thread()
#define blockIdx host_block_index()

static void host_yield() {
  const int from = host_current, n = (int)host_fibers.size();
  int to = from;
  do to = (to + 1) % n; while (host_fibers[to].done && to != from);
  if (to == from) return;
  host_current = to;
  swapcontext(&host_fibers[from].context, &host_fibers[to].context);
}

// `size` is read again while waiting: threads that have ended no longer count, as on the GPU
static void host_wait(HostBarrier& barrier, const int& size) {
  const unsigned mine = barrier.generation;
  barrier.arrived++;
  while (barrier.generation == mine) {
    if (barrier.arrived >= size) { barrier.arrived = 0; barrier.generation++; return; }
    host_yield();
  }
}

static void __syncthreads() { host_wait(host_block[host_rank()], host_left[host_rank()]); }

static int host_counted(int* p, int n) { const int was = *p; *p += n; return was; }
#define atomicAdd host_counted
static int nt_arrived(int* counter) { return host_counted(counter, 1); }
static int __syncthreads_or(int mine) {
  static int said;
  said |= mine;
  __syncthreads();
  const int any = said;
  __syncthreads();
  said = 0;
  __syncthreads();
  return any;
}

static int host_warp_size(int warp) { return blockDim.x - 32 * warp < 32 ? blockDim.x - 32 * warp : 32; }

static void __syncwarp(unsigned = ~0u) { const int w = host_thread().x / 32; host_wait(host_warp[host_rank()][w], host_warp_size(w)); }

template <class T> static T __shfl_sync(unsigned, T value, int source) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = host_rank();
  static_assert(sizeof(T) == 4, "32-bit shuffles");
  memcpy(&host_slots[rank][warp][lane], &value, 4);
  __syncwarp();
  T result;
  memcpy(&result, &host_slots[rank][warp][source & 31], 4);
  __syncwarp();
  return result;
}

template <class T> static T __shfl_xor_sync(unsigned m, T value, int mask) { return __shfl_sync(m, value, (threadIdx.x % 32) ^ mask); }

// the barrier of all threads of a cluster: each arrives, goes on, and waits later
static void nt_cluster_arrive() {
  host_fibers[host_current].phase = host_cluster.phase;
  if (++host_cluster.arrived == (int)host_fibers.size()) { host_cluster.arrived = 0; host_cluster.phase++; }
}

static void nt_cluster_wait() { while (host_cluster.phase == host_fibers[host_current].phase) host_yield(); }

// shared addresses are offsets in the arena, which holds the blocks of a cluster one after the other
static uint32_t __cvta_generic_to_shared(const void* p) { return (uint32_t)((const unsigned char*)p - host_arena[0]); }
static uint32_t nt_at_rank(uint32_t address, uint32_t rank) { return address % HOST_ARENA + rank * HOST_ARENA; }
static void nt_remote_store4(uint32_t remote, uint32_t v) {
  if (host_cluster.phase == 0 || remote >= sizeof(host_arena)) abort();
  memcpy(host_arena[0] + remote, &v, 4);
}

static void host_entry() {
  host_body(host_arguments);
  host_fibers[host_current].done = true;
  host_left[host_rank()]--;
  if (--host_live == 0) setcontext(&host_main);
  host_yield();
}

static void host_launch(void (*body)(void**), void** arguments, int gx, int gy, int gz, int threads, int shared, int cluster) {
  host_body = body; host_arguments = arguments;
  gridDim = {gx, gy, gz}; blockDim = {threads, 1, 1};
  if (shared > HOST_ARENA - HOST_STATES) abort();
  host_fibers.resize(threads * cluster);
  for (auto& f : host_fibers) f.stack.resize(1 << 16);
  for (host_first = 0; host_first < gx * gy * gz; host_first += cluster) {
    for (int r = 0; r < cluster; r++) memset(host_arena[r] + HOST_STATES, 0xff, shared);
    if (cluster > 1) for (int r = 0; r < cluster; r++) memset(host_arena[r], 0xff, HOST_STATES);
    for (int r = 0; r < cluster; r++) host_left[r] = threads;
    host_cluster.arrived = 0; host_cluster.phase = 0;
    for (int t = 0; t < threads * cluster; t++) {
      HostFiber& f = host_fibers[t];
      f.thread = t % threads; f.rank = t / threads; f.done = false;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, host_entry, 0);
    }
    host_current = 0; host_live = threads * cluster;
    swapcontext(&host_main, &host_fibers[0].context);
  }
  host_fibers.clear();
}

static inline uint32_t __float_as_uint(float x) { uint32_t r; memcpy(&r, &x, 4); return r; }
static inline float __uint_as_float(uint32_t x) { float r; memcpy(&r, &x, 4); return r; }
static inline long long __double_as_longlong(double x) { long long r; memcpy(&r, &x, 8); return r; }
static inline double __longlong_as_double(long long x) { double r; memcpy(&r, &x, 8); return r; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float nt_max(float a, float b) { return (a != a || b != b) ? NAN : a > b ? a : b; }
inline float nt_min(float a, float b) { return (a != a || b != b) ? NAN : a < b ? a : b; }
inline float nt_ex2(float x) { return exp2f(x); }
inline float nt_lg2(float x) { return log2f(x); }
inline float nt_rcp(float x) { return 1.0f / x; }
inline float nt_div(float a, float b) { return a / b; }
inline float nt_sqrt_fast(float x) { return sqrtf(x); }
inline float nt_tanh_approx(float x) { return tanhf(x); }
inline float nt_sin_approx(float x) { return sinf(x); }
inline float nt_cos_approx(float x) { return cosf(x); }
inline uint16_t nt_bf16_of_f32(float x) {
  const uint32_t u = __float_as_uint(x);
  return x != x ? 0x7fff : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline uint32_t nt_bf16x2_of_f32(float lo, float hi) { return nt_bf16_of_f32(lo) | ((uint32_t)nt_bf16_of_f32(hi) << 16); }
inline float nt_f32_of_f16(uint16_t x) { return _cvtsh_ss(x); }
inline uint16_t nt_f16_of_f32(float x) { return _cvtss_sh(x, 0); }
inline uint32_t nt_f16x2_of_f32(float lo, float hi) { return nt_f16_of_f32(lo) | ((uint32_t)nt_f16_of_f32(hi) << 16); }
inline float nt_tf32_of_f32(float x) {
  return std::isfinite(x) ? __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u) : x;
}
inline void nt_ld16(uint32_t* r, const void* p) { if ((uintptr_t)p % 16) abort(); memcpy(r, p, 16); }
inline void nt_ld16_kept(uint32_t* r, const void* p) { if ((uintptr_t)p % 16) abort(); memcpy(r, p, 16); }
inline void nt_ld8(uint32_t* r, const void* p) { if ((uintptr_t)p % 8) abort(); memcpy(r, p, 8); }
inline void nt_st16(void* p, const uint32_t* r) { if ((uintptr_t)p % 16) abort(); memcpy(p, r, 16); }
inline void nt_st8(void* p, const uint32_t* r) { if ((uintptr_t)p % 8) abort(); memcpy(p, r, 8); }
inline void nt_hide(uint32_t&) {}
inline void nt_overlap() {}
inline void nt_copy16(uint32_t to, const void* p) { if ((uintptr_t)p % 16 || to % 16) abort(); memcpy(host_arena[0] + to, p, 16); }
inline void nt_copy_commit() {}
template <int pending> inline void nt_copy_wait() {}
template <class V> struct HostStaged { uint32_t from; operator V() const { V v; memcpy(&v, host_arena[0] + from, 16); return v; } };
#define nt_staged(from) HostStaged<nt_vec<16>>{from}
