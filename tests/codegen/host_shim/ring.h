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
  if (p.left == 0 || bytes % 16) abort();
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
    if (p.left == 0) {
      for (auto& copy : p.copies) copy();
      p.copies.clear();
      host_settle(p);
    } else host_yield();
  }
}
