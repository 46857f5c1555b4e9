// CUDA threads as fibers on the CPU: enough of the device's meaning to run generated kernels.
//   run(kernel, blocks, threads, shared)   every block in turn, its threads as fibers
// Asynchronous copies land as late as a wait allows (lazy) or at once (eager): a missing wait shows
// in the first, a slot that is filled too early in the second. Shared memory starts as NaNs.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <array>
#include <deque>
#include <functional>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __global__
#define __restrict__ __restrict
#define __launch_bounds__(...)
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
struct Index3 { unsigned x, y, z; };
static Index3 threadIdx, blockIdx;
namespace host {
struct Copy { unsigned char* to; const void* from; int bytes, valid; };
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  unsigned long barrier = 0, exchanges = 0;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current, live;
static bool lazy;
static std::vector<unsigned char> shared;
static std::vector<unsigned long> warp_arrivals;
static std::vector<std::array<std::array<unsigned char, 64 * 32>, 2>> exchange;
static unsigned long block_arrivals;
static std::function<void()> kernel;
inline void yield() { swapcontext(&fibers[current].context, &scheduler); }
inline int lane() { return current % 32; }
inline unsigned char* base() { return shared.data(); }
inline void block_barrier() {
  Fiber& f = fibers[current];
  const unsigned long wanted = ++f.barrier * fibers.size();
  block_arrivals++;
  while (block_arrivals < wanted) yield();
}
template <class T> inline void gather(const T& v, T (&all)[32]) {
  static_assert(sizeof(T) <= 64, "");
  Fiber& f = fibers[current];
  const int warp = current / 32, side = f.exchanges++ % 2;
  memcpy(&exchange[warp][side][64 * lane()], &v, sizeof(T));
  warp_arrivals[warp]++;
  while (warp_arrivals[warp] < 32 * f.exchanges) yield();
  for (int i = 0; i < 32; i++) memcpy(&all[i], &exchange[warp][side][64 * i], sizeof(T));
}
inline void land(const Copy& c) {
  memset(c.to, 0, c.bytes);
  if (c.valid) memcpy(c.to, c.from, c.valid);
}
inline void copy(unsigned to, const void* from, int bytes, int valid) {
  if (to % bytes || (uintptr_t)from % (valid ? bytes : 1) || to + bytes > shared.size()) {
    fprintf(stderr, "misplaced copy of %d bytes\n", bytes);
    exit(3);
  }
  Copy c{base() + to, from, bytes, valid};
  if (lazy) fibers[current].open.push_back(c); else land(c);
}
inline void commit() {
  Fiber& f = fibers[current];
  f.groups.push_back(f.open);
  f.open.clear();
}
inline void wait(int pending) {
  Fiber& f = fibers[current];
  while ((int)f.groups.size() > pending) {
    for (const Copy& c : f.groups.front()) land(c);
    f.groups.pop_front();
  }
}
inline void entry() {
  kernel();
  fibers[current].done = true;
  live--;
  swapcontext(&fibers[current].context, &scheduler);
}
inline void run(std::function<void()> f, unsigned blocks, unsigned threads, size_t bytes, bool late) {
  kernel = f;
  lazy = late;
  for (unsigned b = 0; b < blocks; b++) {
    shared.assign(bytes, 0xff);
    fibers = std::vector<Fiber>(threads);
    warp_arrivals.assign(threads / 32, 0);
    exchange.resize(threads / 32);
    block_arrivals = 0;
    live = threads;
    for (unsigned t = 0; t < threads; t++) {
      Fiber& x = fibers[t];
      x.stack.resize(1 << 17);
      getcontext(&x.context);
      x.context.uc_stack.ss_sp = x.stack.data();
      x.context.uc_stack.ss_size = x.stack.size();
      x.context.uc_link = &scheduler;
      makecontext(&x.context, entry, 0);
    }
    for (long idle = 0; live; idle++) {
      if (idle > 2000000) { fprintf(stderr, "deadlock\n"); exit(4); }
      for (unsigned t = 0; t < threads; t++) {
        if (fibers[t].done) continue;
        current = t;
        threadIdx = {t, 0, 0};
        blockIdx = {b, 0, 0};
        swapcontext(&scheduler, &fibers[t].context);
      }
    }
  }
}
}  // namespace host
inline void __syncthreads() { host::block_barrier(); }
template <class To, class From> inline To bits(From x) {
  To r;
  static_assert(sizeof(To) == sizeof(From), "");
  memcpy(&r, &x, sizeof(r));
  return r;
}
inline float __uint_as_float(unsigned x) { return bits<float>(x); }
inline unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
