// Rings that the copy engine fills, on the CPU, after shim.h. A copy destroys what its slot held when
// it is issued and is there when its barrier is first waited for: as early and as late as may be.
#include <functional>
#include <map>
#include <utility>

struct HostPhase { uint32_t count, left, parity; long long bytes; std::vector<std::function<void()>> copies; };
static std::map<std::pair<int, uint32_t>, HostPhase> host_phases;
static HostPhase& host_phase(uint32_t barrier) {
  const auto found = host_phases.find({host_rank(), barrier});
  if (found == host_phases.end() || barrier % 8) abort();
  return found->second;
}
static void host_settle(HostPhase& p) {
  if (p.left == 0 && p.bytes == 0) { p.left = p.count; p.parity ^= 1; }
}
static void nt_barrier_init(uint32_t barrier, uint32_t count) { host_phases[{host_rank(), barrier}] = {count, count, 0, 0, {}}; }
static void nt_barrier_init_done() {}
static void nt_barrier_expect(uint32_t barrier, uint32_t bytes) {
  HostPhase& p = host_phase(barrier);
  if (p.left == 0 || bytes % 4) abort();
  p.bytes += bytes; p.left--; host_settle(p);
}
static void nt_bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  if (to % 16 || (uintptr_t)from % 16 || bytes % 16 || to % HOST_ARENA < HOST_STATES) abort();
  memset(host_arena[0] + to, 0xff, bytes);
  host_phase(barrier).copies.push_back([=] {
    memcpy(host_arena[0] + to, from, bytes);
    host_phase(barrier).bytes -= bytes;
  });
}
static void nt_barrier_wait(uint32_t barrier, uint32_t parity) {
  HostPhase& p = host_phase(barrier);
  while (p.parity == parity) {
    for (auto& copy : p.copies) copy();
    p.copies.clear();
    host_settle(p);
    if (p.parity == parity) host_yield();
  }
}

// what is sent to another block's barrier arrives late: when that barrier is waited for
static void nt_remote_send4(uint32_t remote, uint32_t v, uint32_t barrier) {
  if (remote % 4 || host_cluster.phase == 0) abort();
  const int rank = barrier / HOST_ARENA;
  const auto found = host_phases.find({rank, barrier});
  if (found == host_phases.end() || remote / HOST_ARENA != rank) abort();
  HostPhase& p = found->second;
  p.bytes -= 4;
  memcpy(host_arena[0] + remote, &v, 4);
}
static void nt_async_fence() {}
typedef std::vector<std::function<void()>> HostStores;
static std::map<int, HostStores> host_open, host_committed;
static int host_self() { return host_rank() * 1024 + threadIdx.x; }
static void nt_bulk_store(void* to, uint32_t from, uint32_t bytes) {
  if ((uintptr_t)to % 16 || from % 16 || bytes % 16) abort();
  host_open[host_self()].push_back([=] { memcpy(to, host_arena[0] + from, bytes); });
}
static void nt_bulk_commit() {
  auto& made = host_open[host_self()];
  auto& all = host_committed[host_self()];
  all.insert(all.end(), made.begin(), made.end());
  made.clear();
}
template <int pending> static void nt_bulk_wait_read() {
  static_assert(pending == 0, "groups are not told apart");
  for (auto& store : host_committed[host_self()]) store();
  host_committed[host_self()].clear();
}
template <int pending> static void nt_bulk_wait() { nt_bulk_wait_read<pending>(); }
inline void nt_store16(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if (to % 16) abort();
  const uint32_t w[4] = {a, b, c, d};
  memcpy(host_arena[0] + to, w, 16);
}
