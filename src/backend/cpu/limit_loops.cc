#include "backend/cpu/limit_loops.h"

#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/limit_loops.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

uint64_t Read(Bytes data) {
  const DU d;
  constexpr size_t kVector = kLanes * sizeof(uint32_t);
  VU a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t at = 0; at + 8 * kVector <= data.size(); at += 8 * kVector) {
    const auto load = [&](size_t v) HWY_ATTR {
      const hn::Repartition<uint8_t, DU> d8;
      return hn::BitCast(d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(data.data() + at + v * kVector)));
    };
    a = hn::Or(hn::Or(a, load(0)), load(1));
    b = hn::Or(hn::Or(b, load(2)), load(3));
    c = hn::Or(hn::Or(c, load(4)), load(5));
    e = hn::Or(hn::Or(e, load(6)), load(7));
  }
  return hn::GetLane(hn::Or(hn::Or(a, b), hn::Or(c, e)));
}

// 12 sums: with the two factors they fit into 16 registers, and they cover 2 units of 4 cycles' latency. Every sum
// starts with another value, or the compiler would compute equal ones once.
int64_t Multiply(int64_t steps) {
  const DF d;
  const VF x = hn::Set(d, 0.5f), y = hn::Set(d, 0.25f);
  const auto start = [&](int n) HWY_ATTR { return hn::Set(d, 1.0f / static_cast<float>(n)); };
  VF s0 = start(1), s1 = start(2), s2 = start(3), s3 = start(4), s4 = start(5), s5 = start(6);
  VF s6 = start(7), s7 = start(8), s8 = start(9), s9 = start(10), s10 = start(11), s11 = start(12);
  for (int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, x, y);
    s1 = hn::MulAdd(s1, x, y);
    s2 = hn::MulAdd(s2, x, y);
    s3 = hn::MulAdd(s3, x, y);
    s4 = hn::MulAdd(s4, x, y);
    s5 = hn::MulAdd(s5, x, y);
    s6 = hn::MulAdd(s6, x, y);
    s7 = hn::MulAdd(s7, x, y);
    s8 = hn::MulAdd(s8, x, y);
    s9 = hn::MulAdd(s9, x, y);
    s10 = hn::MulAdd(s10, x, y);
    s11 = hn::MulAdd(s11, x, y);
  }
  const VF all = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  const float sum = SumLanes(hn::Add(all, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11))));
  // The sums stay below 12 vectors of 1; asking makes them needed.
  return sum < 1e6f ? steps * 12 * kLanes : 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

uint64_t ReadMemory(Isa isa, Bytes data) { return DFIN_CALL_FOR_ISA(isa, Read, data); }
int64_t MultiplyAdds(Isa isa, int64_t steps) { return DFIN_CALL_FOR_ISA(isa, Multiply, steps); }

}  // namespace deltafin::cpu
#endif
