// Host versions of the device functions that are written in PTX or need the GPU's own units.
typedef unsigned int nt_u32;
typedef unsigned short nt_u16;
typedef unsigned char nt_u8;
typedef long long nt_i64;
inline float nt_max(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
inline float nt_min(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
inline float nt_ex2(float x) { return exp2f(x); }
inline float nt_lg2(float x) { return log2f(x); }
inline float nt_rcp(float x) { return 1.f / x; }
inline float nt_div(float a, float b) { return a / b; }
inline float nt_sqrt_fast(float x) { return sqrtf(x); }
inline float nt_tanh_approx(float x) { return tanhf(x); }
inline float nt_sin_approx(float x) { return sinf(x); }
inline float nt_cos_approx(float x) { return cosf(x); }
inline nt_u16 nt_bf16_of_f32(float f) {
  const nt_u32 u = bits<nt_u32>(f);
  return f != f ? 0x7fff : (nt_u16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline nt_u32 nt_bf16x2_of_f32(float lo, float hi) {
  return nt_bf16_of_f32(lo) | (nt_u32)nt_bf16_of_f32(hi) << 16;
}
inline float nt_f32_of_f16(nt_u16 x) { return (float)bits<_Float16>(x); }
inline nt_u16 nt_f16_of_f32(float x) { return bits<nt_u16>((_Float16)x); }
inline nt_u32 nt_f16x2_of_f32(float lo, float hi) {
  return nt_f16_of_f32(lo) | (nt_u32)nt_f16_of_f32(hi) << 16;
}
inline nt_u32 nt_tf32_bits(nt_u32 u) {
  return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}
inline float nt_tf32_of_f32(float x) { return bits<float>(nt_tf32_bits(bits<nt_u32>(x))); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline nt_u32 nt_shared(const void* p) { return (nt_u32)((const unsigned char*)p - host::base()); }
inline void nt_copy16(nt_u32 to, const void* from) { host::copy(to, from, 16, 16); }
inline void nt_copy16_part(nt_u32 to, const void* from, int n) { host::copy(to, from, 16, n); }
inline void nt_copy8_part(nt_u32 to, const void* from, int n) { host::copy(to, from, 8, n); }
inline void nt_copy4_part(nt_u32 to, const void* from, int n) { host::copy(to, from, 4, n); }
inline void nt_copy_commit() { host::commit(); }
template <int pending> inline void nt_copy_wait() { host::wait(pending); }
inline unsigned char* shared_at(nt_u32 at, nt_u32 size) {
  if (at % size || at + size > host::shared.size()) {
    fprintf(stderr, "shared access of %u bytes at %u\n", size, at);
    exit(3);
  }
  return host::base() + at;
}
inline void nt_store16(nt_u32 to, nt_u32 a, nt_u32 b, nt_u32 c, nt_u32 d) {
  const nt_u32 v[4] = {a, b, c, d};
  memcpy(shared_at(to, 16), v, 16);
}
inline void nt_store8(nt_u32 to, nt_u32 a, nt_u32 b) {
  const nt_u32 v[2] = {a, b};
  memcpy(shared_at(to, 8), v, 8);
}
inline void nt_store4(nt_u32 to, nt_u32 v) { memcpy(shared_at(to, 4), &v, 4); }
inline void nt_store2(nt_u32 to, nt_u16 v) { memcpy(shared_at(to, 2), &v, 2); }
inline nt_u32 nt_load4(nt_u32 from) { nt_u32 v; memcpy(&v, shared_at(from, 4), 4); return v; }
inline nt_u16 nt_load2(nt_u32 from) { nt_u16 v; memcpy(&v, shared_at(from, 2), 2); return v; }
inline void nt_export16(void* to, nt_u32 from) {
  if ((uintptr_t)to % 16) { fprintf(stderr, "misaligned store\n"); exit(3); }
  memcpy(to, shared_at(from, 16), 16);
}
template <int words> inline void nt_read(nt_u32 (&w)[words], const void* from) {
  const int size = words * 4 > 16 ? 16 : words * 4;
  if ((uintptr_t)from % size) { fprintf(stderr, "misaligned read\n"); exit(3); }
  memcpy(w, from, sizeof(w));
}
template <int words> inline void nt_zero(nt_u32 (&w)[words]) { memset(w, 0, sizeof(w)); }
inline void nt_fragments(nt_u32 (&r)[4], nt_u32 at) {
  nt_u32 all[32];
  host::gather(at, all);
  const int lane = host::lane();
  for (int m = 0; m < 4; m++) memcpy(&r[m], shared_at(all[8 * m + lane / 4], 16) + 4 * (lane % 4), 4);
}
inline void nt_fragments_transposed(nt_u32 (&r)[4], nt_u32 at) {
  nt_u32 all[32];
  host::gather(at, all);
  const int lane = host::lane();
  for (int m = 0; m < 4; m++) {
    nt_u16 v[2];
    for (int q = 0; q < 2; q++)
      memcpy(&v[q], shared_at(all[8 * m + 2 * (lane % 4) + q], 16) + 2 * (lane / 4), 2);
    r[m] = (nt_u32)v[0] | (nt_u32)v[1] << 16;
  }
}
struct Operands { nt_u32 a[4], b[2]; };
// d += A B with the element positions of PTX: a word holds `word` elements of 32 bytes along k
template <int word, class Decode>
inline void multiply(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1, Decode decode) {
  Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
  host::gather(mine, all);
  const int lane = host::lane(), g = lane / 4, t = lane % 4;
  for (int e = 0; e < 4; e++) {
    const int column = 2 * t + (e & 1);
    double sum = d[e];
    for (int k = 0; k < 8 * word; k++) {
      const int high = k / (4 * word), source = k % (4 * word) / word;
      sum += (double)decode(all[4 * g + source].a[2 * high + (e >> 1)], k % word)
             * decode(all[4 * column + source].b[high], k % word);
    }
    d[e] = (float)sum;
  }
}
inline void nt_mma_bf16(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  multiply<2>(d, a, b0, b1, [](nt_u32 w, int q) { return bits<float>(q ? w & 0xffff0000u : w << 16); });
}
inline void nt_mma_f16(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  multiply<2>(d, a, b0, b1, [](nt_u32 w, int q) { return nt_f32_of_f16((nt_u16)(q ? w >> 16 : w)); });
}
inline void nt_mma_tf32(float (&d)[4], const nt_u32 (&a)[4], nt_u32 b0, nt_u32 b1) {
  multiply<1>(d, a, b0, b1, [](nt_u32 w, int) { return bits<float>(w & 0xffffe000u); });
}
inline void nt_pieces(nt_u32 (&high)[4], nt_u32 (&low)[4], const nt_u32 (&x)[4]) {
  for (int e = 0; e < 4; e++) {
    high[e] = nt_tf32_bits(x[e]);
    const float rest = bits<float>(x[e]) - bits<float>(high[e]);
    low[e] = x[e] == high[e] ? 0u : nt_tf32_bits(bits<nt_u32>(rest));
  }
}
inline void nt_mma_pieces(float (&d)[4], const nt_u32 (&ha)[4], const nt_u32 (&la)[4], nt_u32 hb0,
                          nt_u32 hb1, nt_u32 lb0, nt_u32 lb1) {
  float sum[4] = {0, 0, 0, 0};
  nt_mma_tf32(sum, la, hb0, hb1);
  nt_mma_tf32(sum, ha, lb0, lb1);
  nt_mma_tf32(sum, ha, hb0, hb1);
  for (int e = 0; e < 4; e++) d[e] += sum[e];
}
inline float nt_shuffle_xor(float x, int lanes) {
  float all[32];
  host::gather(x, all);
  return all[host::lane() ^ lanes];
}
inline bool nt_any(bool p) {
  bool all[32], any = false;
  host::gather(p, all);
  for (bool q : all) any |= q;
  return any;
}
inline void nt_warp_sync() { nt_any(false); }

struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int nt_arrived(int* counter) { return (*counter)++; }
template <class T> inline const T* nt_after(const T* p) { return p; }
inline int __syncthreads_or(int mine) {
  static int said;
  said |= mine;
  __syncthreads();
  const int any = said;
  __syncthreads();
  said = 0;
  __syncthreads();
  return any;
}
template <class T> inline T nt_stored(const T* p) { return *p; }
inline void nt_stored4(float (&to)[4], const float* p) {
  if ((uintptr_t)p % 16) exit(5);
  for (int i = 0; i < 4; i++) to[i] = p[i];
}
