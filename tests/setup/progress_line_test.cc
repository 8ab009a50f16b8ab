// One line of progress: rate and time left always show, the name is what gives way.
#include "app/progress_line.h"

#include <gtest/gtest.h>

namespace deltafin::test {
namespace {

const std::vector<std::string> kParts = {"52.3 MB/s", "2 h 52 min left", "1.02 TB/1.56 TB", "65/105 files",
                                         "3 retries"};
const std::string kName = "model-00065-of-000096.safetensors";

TEST(ProgressLine, ShowsAllWhereThereIsRoom) {
  EXPECT_EQ(ProgressLine(kParts, "fetching", kName, 200),
            "52.3 MB/s  2 h 52 min left  1.02 TB/1.56 TB  65/105 files  3 retries  fetching " + kName);
}

TEST(ProgressLine, RateAndTimeLeftShowAtEightyAndAtFortyColumns) {
  EXPECT_EQ(ProgressLine(kParts, "fetching", kName, 79),
            "52.3 MB/s  2 h 52 min left  1.02 TB/1.56 TB  65/105 files  3 retries  fetching");
  EXPECT_EQ(ProgressLine(kParts, "fetching", kName, 39), "52.3 MB/s  2 h 52 min left  fetching");
}

TEST(ProgressLine, TheNameLosesItsBeginningFirst) {
  EXPECT_EQ(ProgressLine({"52.3 MB/s"}, "fetching", kName, 40), "52.3 MB/s  fetching ...00096.safetensors");
  for (size_t width = 0; width < 120; ++width) EXPECT_LE(ProgressLine(kParts, "fetching", kName, width).size(), width);
}

}  // namespace
}  // namespace deltafin::test
