// Pages of latents: taken as they begin, never moved, shared until somebody writes over another's rows.
#include "model/mla_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace deltafin {
namespace {

constexpr int64_t kLayers = 3, kWidth = 5, kPage = MlaCache::kPagePositions;

float ValueAt(int64_t layer, int64_t position, float mark) {
  return mark + static_cast<float>(layer * 10000 + position);
}

void Append(MlaCache& cache, int64_t first, int64_t count, float mark) {
  ASSERT_TRUE(cache.Prepare(first, count));
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t at = first; at < first + count;) {
      const Rows rows = cache.Writable(layer, at, first + count - at).view();
      for (int64_t r = 0; r < rows.rows; ++r) std::fill_n(rows.row(r), kWidth, ValueAt(layer, at + r, mark));
      at += rows.rows;
    }
  }
}

void ExpectRows(const MlaCache& cache, int64_t first, int64_t end, float mark) {
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const PagedRows view = cache.View(layer, end);
    for (int64_t r = first; r < end; ++r)
      for (int64_t c = 0; c < kWidth; ++c) ASSERT_EQ(view.row(r)[c], ValueAt(layer, r, mark)) << layer << " " << r;
  }
}

TEST(MlaCache, HoldsWhatWasAppendedInAnyPieces) {
  for (const int64_t piece : {int64_t{1}, int64_t{7}, kPage, 2 * kPage + 3}) {
    MlaCache cache(kLayers, kWidth, 1 << 20);
    for (int64_t at = 0; at < 3 * kPage + 5; at += piece) Append(cache, at, piece, 0);
    ExpectRows(cache, 0, 3 * kPage + 5, 0);
  }
}

TEST(MlaCache, InBf16TakesHalfAndSharesAndCopiesAlike) {
  MlaCache cache(kLayers, kWidth, 1 << 20, DType::kBF16);
  EXPECT_EQ(2 * cache.page_bytes(), MlaCache(kLayers, kWidth, 1).page_bytes());
  const auto append = [](MlaCache& to, int64_t first, int64_t count, uint16_t mark) {
    ASSERT_TRUE(to.Prepare(first, count));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t at = first; at < first + count;) {
        const PackedRows rows = to.Writable(layer, at, first + count - at);
        ASSERT_EQ(rows.f32, nullptr);
        std::fill_n(rows.bf16, rows.rows * kWidth, static_cast<uint16_t>(mark + layer));
        at += rows.rows;
      }
    }
  };
  append(cache, 0, kPage + 9, 100);
  MlaCache other = cache.Prefix(kPage + 9, 1024);
  append(cache, kPage + 9, 20, 200);
  append(other, kPage + 9, 20, 300);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const PagedRows one = cache.View(layer, kPage + 29), two = other.View(layer, kPage + 29);
    ASSERT_TRUE(one.is_bf16());
    for (int64_t r = 0; r < kPage + 29; ++r) {
      ASSERT_EQ(one.bf16_row(r)[kWidth - 1], (r < kPage + 9 ? 100 : 200) + layer) << r;
      ASSERT_EQ(two.bf16_row(r)[0], (r < kPage + 9 ? 100 : 300) + layer) << r;
    }
  }
  EXPECT_EQ(cache.pages()[0], other.pages()[0]);
}

TEST(MlaCache, TakesAPageWhenItBegins) {
  MlaCache cache(kLayers, kWidth, 1 << 20);
  EXPECT_TRUE(cache.pages().empty());
  Append(cache, 0, kPage, 0);
  EXPECT_EQ(cache.pages().size(), 1u);
  Append(cache, kPage, 1, 0);
  EXPECT_EQ(cache.pages().size(), 2u);
  cache.Truncate(kPage + 1);
  EXPECT_EQ(cache.pages().size(), 2u);
  cache.Truncate(kPage);
  EXPECT_EQ(cache.pages().size(), 1u);
}

TEST(MlaCache, RowsNeverMove) {
  MlaCache cache(kLayers, kWidth, 10);  // less room than is used
  Append(cache, 0, 3, 0);
  const float* const row = cache.View(1, 3).row(2);
  for (int64_t at = 3; at < 5 * kPage; at += 11) Append(cache, at, 11, 0);
  EXPECT_EQ(cache.View(1, 3).row(2), row);
}

TEST(MlaCache, SharersSeeTheirOwnRowsBehindTheSharedOnes) {
  const int64_t shared = kPage + 9;
  MlaCache first(kLayers, kWidth, 1024);
  Append(first, 0, shared, 0);
  MlaCache second = first.Prefix(shared, 1024);
  MlaCache third = first.Prefix(shared, 1024);
  EXPECT_EQ(first.pages(), second.pages());
  Append(second, shared, kPage, 0.25f);
  Append(first, shared, 3, 0.5f);
  Append(third, shared, 5, 0.75f);
  for (const MlaCache* cache : {&first, &second, &third}) ExpectRows(*cache, 0, shared, 0);
  ExpectRows(first, shared, shared + 3, 0.5f);
  ExpectRows(second, shared, shared + kPage, 0.25f);
  ExpectRows(third, shared, shared + 5, 0.75f);
  EXPECT_EQ(first.pages()[0], third.pages()[0]);
}

TEST(MlaCache, TheFirstToAppendGoesOnInPlaceAndOthersCopyOnlyTheLastPage) {
  MlaCache first(kLayers, kWidth, 1024);
  Append(first, 0, kPage + 9, 0);
  MlaCache second = first.Prefix(kPage + 9, 1024);
  const MlaPage last = first.pages()[1];
  Append(first, kPage + 9, 1, 0);
  EXPECT_EQ(first.pages()[1], last);
  Append(second, kPage + 9, 1, 0);
  EXPECT_FALSE(second.pages()[1] == last);
  EXPECT_EQ(second.pages()[0], first.pages()[0]);
}

// A step that failed has written behind the sequence; what it shared stays as it was.
TEST(MlaCache, RowsThatWereNotKeptAreWrittenAgain) {
  MlaCache cache(kLayers, kWidth, 1024);
  Append(cache, 0, 20, 0);
  MlaCache kept = cache.Prefix(20, 1024);
  Append(cache, 20, 30, 0.5f);
  Append(cache, 20, 2 * kPage, 0.25f);
  Append(kept, 20, 4, 0.75f);
  ExpectRows(cache, 0, 20, 0);
  ExpectRows(cache, 20, 20 + 2 * kPage, 0.25f);
  ExpectRows(kept, 20, 24, 0.75f);
}

TEST(MlaCache, AShorterPrefixOverwritesNothingOfALongerOne) {
  MlaCache cache(kLayers, kWidth, 1024);
  Append(cache, 0, 50, 0);
  MlaCache kept = cache.Prefix(10, 1024);
  Append(kept, 10, 20, 0.5f);
  ExpectRows(cache, 0, 50, 0);
  ExpectRows(kept, 0, 10, 0);
  ExpectRows(kept, 10, 30, 0.5f);
}

TEST(MlaCache, PagesOutliveTheCacheThatTookThem) {
  MlaCache kept;
  {
    MlaCache cache(kLayers, kWidth, 1024);
    Append(cache, 0, 2 * kPage, 0);
    kept = cache.Prefix(kPage + 1, 1024);
  }
  ExpectRows(kept, 0, kPage + 1, 0);
}

}  // namespace
}  // namespace deltafin
