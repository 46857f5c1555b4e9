// Enough of Hopper to run a generated kernel on the CPU, after shim.h. Shared memory is addressed as
// on the device: the copy engine and the products permute 16-byte chunks by the address itself (bits
// 4-6 by bits 7-9, swizzle of 128 bytes), and read descriptors as the PTX ISA describes them.
// Products run when they are waited for, stores by the copy engine when their reads are waited for:
// as late as the device may. Each block of a cluster has shared memory and barriers of its own.
#include <cstdio>
#include <functional>
#define __grid_constant__
enum { HOPPER_RANKS = 2 };
alignas(1024) static unsigned char hopper_memory[HOPPER_RANKS][1 << 18];
#define hopper_shared hopper_memory[host_rank()]
#define __cvta_generic_to_shared(p) ((uint32_t)((const unsigned char*)(p) - hopper_shared) + HOST_BASE)
enum { HOST_BASE = 16 };
typedef unsigned long long host_u64;
struct float2 { float x, y; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
template <class T> static T __ldg(const T* p) { if ((uintptr_t)p % sizeof(T)) abort(); return *p; }

struct nt_map { unsigned char* data; long long extents[5], strides[5]; int box[5]; int rank, size; };

static unsigned char* host_at(uint32_t address, int rank) { return hopper_memory[rank] + (address - HOST_BASE); }
static unsigned char* host_at(uint32_t address) { return host_at(address, host_rank()); }
static uint32_t host_swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }
static long long host_spins;
static void host_spin(const char* what) {
  if (++host_spins > 20000000) { fprintf(stderr, "deadlock: %s, thread %d\n", what, threadIdx.x); abort(); }
  host_yield();
}

// -- barriers: the word holds the phase, what is still to arrive, and bytes still to come
struct HostPhase { uint32_t count, left, parity; int bytes; };
struct HostPhases { HostPhase phases[64]; uint32_t at[64]; int count; };
static HostPhases host_phases[HOPPER_RANKS];
static HostPhase& host_phase(uint32_t barrier, int rank) {
  HostPhases& own = host_phases[rank];
  for (int i = 0; i < own.count; i++) if (own.at[i] == barrier) return own.phases[i];
  fprintf(stderr, "no barrier at %u\n", barrier); abort();
}
static HostPhase& host_phase(uint32_t barrier) { return host_phase(barrier, host_rank()); }
static void host_settle(HostPhase& p) {
  if (p.left == 0 && p.bytes == 0) { p.left = p.count; p.parity ^= 1; host_spins = 0; }
}
static void nt_barrier_init(uint32_t barrier, uint32_t count) {
  if (barrier % 8) abort();
  HostPhases& own = host_phases[host_rank()];
  for (int i = 0; i < own.count; i++) if (own.at[i] == barrier) abort();
  own.at[own.count] = barrier;
  own.phases[own.count++] = {count, count, 0, 0};
}
static void nt_barrier_init_done() {}
static void nt_barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  if (rank && host_cluster.phase == 0) { fprintf(stderr, "the other block may not have begun\n"); abort(); }
  HostPhase& p = host_phase(barrier, rank);
  if (p.left == 0) { fprintf(stderr, "too many arrivals\n"); abort(); }
  p.left--; host_settle(p);
}
static void nt_barrier_arrive(uint32_t barrier) { nt_barrier_arrive_at(barrier, host_rank()); }
static void nt_barrier_expect(uint32_t barrier, uint32_t bytes) { host_phase(barrier).bytes += bytes; nt_barrier_arrive(barrier); }
static void nt_barrier_wait(uint32_t barrier, uint32_t parity) { while (host_phase(barrier).parity == parity) host_spin("barrier"); }

struct HostNamed { int arrived; unsigned generation; };
static HostNamed host_all_named[HOPPER_RANKS][16];
#define host_named host_all_named[host_rank()]
static void nt_named_arrive(int id, int threads) {
  if (id < 1 || id > 15) abort();
  if (++host_named[id].arrived == threads) { host_named[id].arrived = 0; host_named[id].generation++; host_spins = 0; }
}
static void nt_named_sync(int id, int threads) {
  const unsigned mine = host_named[id].generation;
  nt_named_arrive(id, threads);
  while (host_named[id].generation == mine) host_spin("named barrier");
}

static int host_said[16];
static int nt_named_any(int id, int threads, int mine) {
  host_said[id] |= mine;
  nt_named_sync(id, threads);
  const int any = host_said[id];
  nt_named_sync(id, threads);
  host_said[id] = 0;
  nt_named_sync(id, threads);
  return any;
}
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
template <class T> static const T* nt_after(const T* p) { return p; }
template <class T> static T nt_stored(const T* p) { return *p; }
static void nt_stored4(float (&to)[4], const float* p) {
  if ((uintptr_t)p % 16) abort();
  for (int i = 0; i < 4; i++) to[i] = p[i];
}

template <int registers> static void nt_give_registers() { static_assert(registers % 8 == 0 && registers >= 24, ""); }
template <int registers> static void nt_take_registers() { static_assert(registers % 8 == 0 && registers <= 256, ""); }
static bool __any_sync(unsigned, bool p) {
  bool any = false;
  for (int l = 0; l < 32; l++) any |= __shfl_sync(~0u, (int)p, l) != 0;
  return any;
}
static uint32_t nt_load4(uint32_t at) { uint32_t v; memcpy(&v, host_at(at), 4); return v; }
static uint16_t nt_load2(uint32_t at) { uint16_t v; memcpy(&v, host_at(at), 2); return v; }
static void nt_store4(uint32_t at, uint32_t v) { memcpy(host_at(at), &v, 4); }
static void nt_store8(uint32_t at, uint32_t a, uint32_t b) { if (at % 8) abort(); nt_store4(at, a); nt_store4(at + 4, b); }
static void nt_hold(uint32_t&) {}
static void nt_pin(uint32_t, float) {}
static void nt_pin_bits(uint32_t, uint32_t) {}
static void nt_async_fence() {}

// -- the copy engine
static void nt_map_prefetch(const nt_map*) {}
template <bool load> static void host_box(const nt_map& m, uint32_t at, const int* c, int rank) {
  if (at % 1024 || m.box[0] * m.size != 128) abort();
  int n = 1;
  for (int a = 0; a < m.rank; a++) n *= m.box[a];
  for (int i = 0; i < n; i++) {
    int rest = i;
    bool inside = true;
    long long offset = 0;
    for (int a = 0; a < m.rank; a++) {
      const long long p = c[a] + rest % m.box[a];
      rest /= m.box[a];
      inside &= p >= 0 && p < m.extents[a];
      offset += p * m.strides[a];
    }
    unsigned char* const there = host_at(host_swizzled(at + i * m.size), rank);
    if (load && inside) memcpy(there, m.data + offset, m.size);
    else if (load) memset(there, 0, m.size);
    else if (inside) memcpy(m.data + offset, there, m.size);
  }
}
template <class... C> static void host_load_at(int rank, uint32_t to, const nt_map* map, uint32_t barrier, C... c) {
  const int at[] = {c...};
  if ((int)sizeof...(c) != map->rank) abort();
  host_box<true>(*map, to, at, rank);
  int bytes = map->size;
  for (int a = 0; a < map->rank; a++) bytes *= map->box[a];
  HostPhase& p = host_phase(barrier, rank);
  p.bytes -= bytes; host_settle(p);
}
template <class... C> static void host_load(uint32_t to, const nt_map* map, uint32_t barrier, C... c) {
  host_load_at(host_rank(), to, map, barrier, c...);
}
template <class... C> static void host_spread(uint32_t to, const nt_map* map, uint32_t barrier, uint16_t ranks, C... c) {
  if (ranks >> HOPPER_RANKS || host_cluster.phase == 0) abort();
  for (int rank = 0; rank < HOPPER_RANKS; rank++) if (ranks >> rank & 1) host_load_at(rank, to, map, barrier, c...);
}
#define nt_tma_spread_2d host_spread
#define nt_tma_spread_3d host_spread
#define nt_tma_load_2d host_load
#define nt_tma_load_3d host_load
typedef std::vector<std::function<void()>> HostGroup;
struct HostGroups { std::vector<HostGroup> stores, products; HostGroup open_stores, open_products; };
static HostGroups host_groups[HOPPER_RANKS][1024];
static HostGroups& host_mine() { return host_groups[host_rank()][threadIdx.x]; }
static void host_finish(std::vector<HostGroup>& groups, int pending) {
  while ((int)groups.size() > pending) { for (auto& f : groups[0]) f(); groups.erase(groups.begin()); }
}
template <class... C> static void host_store(const nt_map* map, uint32_t from, C... c) {
  if ((int)sizeof...(c) != map->rank) abort();
  host_mine().open_stores.push_back([=] { const int at[] = {c...}; host_box<false>(*map, from, at, host_rank()); });
}
#define nt_tma_store_2d host_store
#define nt_tma_store_3d host_store
static void nt_bulk_commit() { HostGroups& m = host_mine(); m.stores.push_back(m.open_stores); m.open_stores.clear(); }
template <int pending> static void nt_bulk_wait_read() { host_finish(host_mine().stores, pending); }
template <int pending> static void nt_bulk_wait() { host_finish(host_mine().stores, pending); }

// -- products
static float host_value(const unsigned char* p, const char* type) {
  uint16_t h; uint32_t w;
  if (!strcmp(type, "bf16")) { memcpy(&h, p, 2); return __uint_as_float((uint32_t)h << 16); }
  if (!strcmp(type, "f16")) { memcpy(&h, p, 2); return nt_f32_of_f16(h); }
  if (!strcmp(type, "tf32")) { memcpy(&w, p, 4); return __uint_as_float(w & 0xffffe000u); }
  const int bits = *p, e5 = !strcmp(type, "f8e5m2"), mantissa = e5 ? 2 : 3, bias = e5 ? 15 : 7;
  const int e = (bits & 127) >> mantissa, m = bits & ((1 << mantissa) - 1);
  const float scale = e ? ldexpf(1.f + ldexpf((float)m, -mantissa), e - bias) : ldexpf((float)m, 1 - bias - mantissa);
  return bits & 128 ? -scale : scale;
}
static int host_size(const char* type) { return !strcmp(type, "bf16") || !strcmp(type, "f16") ? 2 : !strcmp(type, "tf32") ? 4 : 1; }
// element (outer, depth) of an operand of one instruction: `outer` is a row of A or a column of B
static float host_operand(host_u64 d, int outer, int depth, bool along_outer, const char* type) {
  const uint32_t start = (d & 0x3fff) << 4, leading = (d >> 16 & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1) abort();
  const int size = host_size(type);
  const uint32_t at = along_outer
      ? start + outer / 64 * leading + depth / 8 * stride + depth % 8 * 128 + outer % 64 * 2
      : start + outer / 8 * stride + outer % 8 * 128 + depth * size;
  return host_value(host_at(host_swizzled(at)), type);
}
template <int n> static void host_multiply(float (&d)[n / 2], const std::vector<float>& a, host_u64 b, bool columns, int keep, const char* type, int thread) {
  const int lane = thread % 32, depth = 32 / host_size(type);
  for (int j = 0; j < n / 8; j++) for (int q = 0; q < 2; q++) {
    const int column = 8 * j + 2 * (lane % 4) + q;
    float right[32];
    for (int k = 0; k < depth; k++) right[k] = host_operand(b, column, k, columns, type);
    for (int e = 0; e < 2; e++) {
      float sum = keep ? d[4 * j + 2 * e + q] : 0.f;
      for (int k = 0; k < depth; k++) sum += a[e * depth + k] * right[k];
      d[4 * j + 2 * e + q] = sum;
    }
  }
}
template <int n> static void host_ss(float (&d)[n / 2], host_u64 a, host_u64 b, int keep, const char* type, bool rows, bool columns) {
  const int thread = threadIdx.x;
  float (*const to)[n / 2] = &d;
  host_mine().open_products.push_back([=] {
    const int depth = 32 / host_size(type), first = thread % 128 / 32 * 16 + thread % 32 / 4;
    std::vector<float> left(2 * depth);
    for (int e = 0; e < 2; e++) for (int k = 0; k < depth; k++) left[e * depth + k] = host_operand(a, first + 8 * e, k, rows, type);
    host_multiply<n>(*to, left, b, columns, keep, type, thread);
  });
}
// a 16-bit left operand in registers: a0, a1 have rows g and g + 8 of depths 2 t, 2 t + 1; a2, a3 of 8 more
template <int n> static void host_rs(float (&d)[n / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, host_u64 b, int keep, const char* type, bool columns) {
  const int thread = threadIdx.x, lane = thread % 32;
  const uint32_t mine[4] = {a0, a1, a2, a3};
  std::vector<float> left(32);
  for (int r = 0; r < 4; r++) for (int t = 0; t < 4; t++) {
    const uint32_t word = __shfl_sync(~0u, mine[r], lane / 4 * 4 + t);
    for (int q = 0; q < 2; q++) {
      const uint16_t half = (uint16_t)(word >> 16 * q);
      left[(r & 1) * 16 + (r >> 1) * 8 + 2 * t + q] = host_value((const unsigned char*)&half, type);
    }
  }
  float (*const to)[n / 2] = &d;
  host_mine().open_products.push_back([=] { host_multiply<n>(*to, left, b, columns, keep, type, thread); });
}
static void nt_wgmma_fence() {}
static void nt_wgmma_commit() { HostGroups& m = host_mine(); m.products.push_back(m.open_products); m.open_products.clear(); }
static void host_wgmma_wait(int pending) { host_finish(host_mine().products, pending); }

static uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
  uint32_t v = 0;
  for (int i = 0; i < 4; i++) {
    const int k = s >> (4 * i) & 7;
    v |= ((k < 4 ? a >> (8 * k) : b >> (8 * (k - 4))) & 0xff) << (8 * i);
  }
  return v;
}
static uint16_t host_f16_of_e4m3(uint8_t x) {
  const uint16_t sign = (x & 0x80) << 8;
  const int e = x >> 3 & 15, m = x & 7;
  if (e == 15 && m == 7) return sign | 0x7fff;
  if (e) return sign | (e + 8) << 10 | m << 7;
  if (!m) return sign;
  int shift = 0;
  while (!(m << shift & 8)) shift++;
  return sign | (9 - shift) << 10 | (m << shift & 7) << 7;
}
static uint32_t nt_f16x2_of_f8e4m3x2(uint16_t p) { return host_f16_of_e4m3(p) | (uint32_t)host_f16_of_e4m3(p >> 8) << 16; }
static uint32_t nt_f16x2_of_f8e5m2x2(uint16_t p) { return (uint32_t)(p & 0xff) << 8 | (uint32_t)(p >> 8) << 24; }
static void nt_store16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { const uint32_t w[4] = {a, b, c, d}; if (at % 16) abort(); memcpy(host_at(at), w, 16); }
static void nt_put_fragments(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t words[4] = {a, b, c, d};
  const int lane = threadIdx.x % 32;
  for (int m = 0; m < 4; m++) {
    const uint32_t row = __shfl_sync(~0u, to, 8 * m + lane / 4);
    if (row % 16) abort();
    memcpy(host_at(row) + lane % 4 * 4, &words[m], 4);
  }
}
static void host_reset() {
  host_phases[host_rank()].count = 0; host_spins = 0;
  memset(hopper_shared, 0xff, sizeof(hopper_shared));
  memset(host_named, 0, sizeof(host_named));
  for (HostGroups& m : host_groups[host_rank()]) {
    if (!m.open_stores.empty() || !m.stores.empty() || !m.open_products.empty()) { fprintf(stderr, "work left over\n"); abort(); }
    m.products.clear();
  }
}
