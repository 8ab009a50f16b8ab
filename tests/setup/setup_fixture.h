// SetupTest: a folder that is fetched into from a hub on this machine, whose waits take no time.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "setup/setup.h"
#include "setup/setup_case.h"

namespace deltafin::test {

using Disturb = std::function<void(const HubRequest&, HubAnswer&)>;

class SetupTest : public testing::Test {
 protected:
  Result<SetupReport> Fetch(SetupOptions options, HubOptions hub = {}) {
    HubAccess access(server_, stall_seconds_, std::move(hub));
    options.on_note = [&](const std::string& note) { notes_ += note + "\n"; };
    Result<SetupReport> report = FetchModel(*access.source, options, {}, {});
    waits_ = access.waiter.waits();
    return report;
  }
  Result<SetupReport> Fetch() { return Fetch(OptionsFor(to())); }
  std::string to() const { return folder_.path() + "/model"; }
  void ExpectWhole() { EXPECT_EQ(FirstDifference(server_.files(), FilesIn(to())), ""); }
  // Fails with `code`, whose message has `words`; nothing wrong has a final name.
  void ExpectRefused(const Result<SetupReport>& report, ErrorCode code, const std::string& words) {
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), code) << report.error().message();
    EXPECT_NE(report.error().message().find(words), std::string::npos) << report.error().message();
    if (std::filesystem::exists(to())) {
      EXPECT_EQ(WrongFile(server_.files(), FilesIn(to())), "");
    }
  }
  // Changes the first `times` answers with contents of large files.
  Disturb FirstContents(int times, std::function<void(HubAnswer&)> change) {
    return [left = std::make_shared<int>(times), change](const HubRequest& r, HubAnswer& a) {
      if (r.to_content_port && a.body.size() > 1000 && (*left)-- > 0) change(a);
    };
  }

  HubServer server_{SmallRepository()};
  TempFolder folder_;
  std::string notes_;
  std::vector<double> waits_;
  double stall_seconds_ = 5;
};

}  // namespace deltafin::test
