// Faults of the machine and of drives, planted one at a time.
#include <filesystem>
#include <fstream>

#include "doctor/doctor_case.h"
#include "io/drive_profile.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
constexpr auto kFault = FindingState::kFault;
constexpr auto kWarning = FindingState::kWarning;
constexpr auto kNote = FindingState::kNote;

struct Planted {
  const char* label;
  FindingState state;
  const char* name;
  const char* text;
  void (*plant)(PlantedHost& host);
};

const Planted kPlanted[] = {
    {"NoAvx2", kFault, "cpu.no-avx2", "none of AVX2", [](PlantedHost& h) { h.instruction_sets.clear(); }},
    {"FewCores", kWarning, "cpu.few-cores", "1 threads of 16",
     [](PlantedHost& h) {
       h.processors = 16;
       h.threads = 1;
     }},
    {"ControlGroup", kNote, "memory.cgroup", "leaves 2.15 GB",
     [](PlantedHost& h) { h.control_group = h.available = uint64_t{2} << 30; }},
    {"ControlGroupUnderTheFloor", kFault, "memory.below-floor", "available memory 15.7 MB: expected at least",
     [](PlantedHost& h) { h.control_group = h.available = uint64_t{16} << 20; }},
    {"SwapUsed", kWarning, "swap.used", "8.59 GB",
     [](PlantedHost& h) {
       h.kernel_texts["/proc/meminfo"] = "MemTotal: 67108864 kB\nSwapTotal: 8388608 kB\nSwapFree: 0 kB";
     }},
    {"SwapInMemory", kNote, "swap.zram", "zram",
     [](PlantedHost& h) {
       h.kernel_texts["/proc/meminfo"] = "MemTotal: 67108864 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB";
       h.kernel_texts["/proc/swaps"] = "Filename Type Size Used Priority\n/dev/zram0 partition 1048576 524288 100";
     }},
    {"NoHugePages", kWarning, "hugepages.off", "switched off",
     [](PlantedHost& h) { h.kernel_texts["/sys/kernel/mm/transparent_hugepage/enabled"] = "always madvise [never]"; }},
    {"StrictOvercommit", kWarning, "memory.strict-overcommit", "overcommit",
     [](PlantedHost& h) { h.kernel_texts["/proc/sys/vm/overcommit_memory"] = "2"; }},
    {"FewFiles", kFault, "nofile.low", "at most 16 open files",
     [](PlantedHost& h) { h.limits[HostLimit::kOpenFiles] = 16; }},
    {"LittleLockedMemory", kWarning, "memlock.low", "65.5 kB",
     [](PlantedHost& h) { h.limits[HostLimit::kLockedBytes] = 65536; }},
    {"AddressSpace", kWarning, "address-space.limited", "4.29 GB",
     [](PlantedHost& h) { h.limits[HostLimit::kAddressSpace] = uint64_t{4} << 30; }},
    {"OldKernel", kWarning, "kernel.old", "5.4.0-generic", [](PlantedHost& h) { h.release = "5.4.0-generic"; }},
    {"KernelWithoutAlignment", kNote, "kernel.alignment", "5.15.0", [](PlantedHost& h) { h.release = "5.15.0"; }},
    {"UringDisabled", kWarning, "io_uring.disabled", "kernel.io_uring_disabled = 2",
     [](PlantedHost& h) {
       h.kernel_texts["/proc/sys/kernel/io_uring_disabled"] = "2";
       h.uring_refusal = "io_uring: Operation not permitted";
     }},
    {"UringRefused", kWarning, "io_uring.refused", "not permitted",
     [](PlantedHost& h) { h.uring_refusal = "io_uring: Operation not permitted"; }},
    {"NetworkDrive", kWarning, "drive.network", "nfs4",
     [](PlantedHost& h) { h.drive = {"nfs4:server", "nfs4", "", "/mnt", "nfs4", false, false, ""}; }},
    {"DriveInMemory", kWarning, "drive.in-memory", "tmpfs",
     [](PlantedHost& h) { h.drive = {"tmpfs:tmpfs", "tmpfs", "", "/mnt", "tmpfs", false, false, ""}; }},
    {"SpinningDisk", kWarning, "drive.rotational", "disk0",
     [](PlantedHost& h) { h.kernel_texts["/sys/block/disk0/queue/rotational"] = "1"; }},
    {"RemovableDrive", kNote, "drive.removable", "disk0",
     [](PlantedHost& h) { h.kernel_texts["/sys/block/disk0/removable"] = "1"; }},
    {"NoDirectReads", kWarning, "drive.no-direct-io", "ext4 refuses", [](PlantedHost& h) { h.alignment = 0; }},
    {"LargeBlocks", kWarning, "drive.alignment", "16384 bytes", [](PlantedHost& h) { h.alignment = 16384; }},
    {"FullDisk", kFault, "space.full", "1.05 MB free", [](PlantedHost& h) { h.space.free_bytes = 1 << 20; }},
    {"NearlyFullDisk", kWarning, "space.low", "1.07 GB free",
     [](PlantedHost& h) { h.space.free_bytes = uint64_t{1} << 30; }},
    {"ReadOnlyDrive", kFault, "state.read-only", "/mnt", [](PlantedHost& h) { h.drive.read_only = true; }},
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.label; }

std::string PlantedName(const testing::TestParamInfo<Planted>& info) { return info.param.label; }

class PlantedMachine : public testing::TestWithParam<Planted> {
 protected:
  void SetUp() override {
    options_ = OptionsFor(RepoPath("models/k3-nano"));
    options_.state_folder = state_.path();
  }
  TempFolder state_;
  DoctorOptions options_;
  PlantedHost host_;
};

TEST_P(PlantedMachine, IsFoundByName) {
  GetParam().plant(host_);
  ExpectFinding(Examine(options_, host_), GetParam().state, GetParam().name, GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedMachine, testing::ValuesIn(kPlanted), PlantedName);

TEST(Machine, AHealthyOneHasNoFaultsAndNoWarnings) {
  const TempFolder state;
  DoctorOptions options = OptionsFor(RepoPath("models/k3-nano"));
  options.state_folder = state.path();
  const std::vector<Finding> findings = Examine(options, PlantedHost());
  EXPECT_EQ(Problems(findings), "");
  ExpectFinding(findings, FindingState::kOk, "start.plan", "768 experts");
  ExpectFinding(findings, FindingState::kOk, "model.complete");
}

TEST(Machine, AVirtualDiskThatCallsItselfRotationalIsNotTakenForOne) {
  PlantedHost host;
  host.drive.device = "vda";
  host.kernel_texts["/sys/block/vda/queue/rotational"] = "1";
  EXPECT_EQ(Problems(Examine(OptionsFor(RepoPath("models/k3-nano")), host)), "");
}

TEST(Machine, WithoutAModelOnlyTheMachineIsLookedAt) {
  const std::vector<Finding> findings = Examine(OptionsFor(""), PlantedHost());
  EXPECT_EQ(Problems(findings), "");
  ExpectFinding(findings, kNote, "model.none");
  EXPECT_EQ(Named(findings, "start.plan").name, "");
}

TEST(Machine, WithoutAModelIsHeldAgainstWhatKimiK3Wants) {
  PlantedHost host;
  ExpectFinding(Examine(OptionsFor(""), host), kNote, "k3.memory", "do not stay in memory");
  ExpectFinding(Examine(OptionsFor(""), host), kNote, "k3.space", "there is room for its dense part (115 GB)");
  host.available = 100'000'000'000;
  ExpectFinding(Examine(OptionsFor(""), host), kNote, "k3.memory", "in 12 bits only");
  host.available = 256'000'000'000;
  host.space = {2'000'000'000'000, 1'600'000'000'000};
  const std::vector<Finding> fits = Examine(OptionsFor(""), host);
  ExpectFinding(fits, FindingState::kOk, "k3.memory", "they stay in memory");
  ExpectFinding(fits, FindingState::kOk, "k3.space", "1.60 TB free at /mnt; Kimi K3 is 1.56 TB: it fits");
  host.space.free_bytes = 100'000'000'000;
  ExpectFinding(Examine(OptionsFor(""), host), kWarning, "k3.space", "there is no room");
  host.space.free_bytes = 800'000'000'000;
  host.more_drives = {host.drive, host.drive};
  ExpectFinding(Examine(OptionsFor(""), host), kNote, "k3.space", "spread over several drives");
  EXPECT_EQ(Named(Examine(OptionsFor(RepoPath("models/k3-nano")), host), "k3.space").name, "");
}

TEST(Machine, ABudgetThatIsTooSmallIsFoundInTheUsersWords) {
  DoctorOptions options = OptionsFor(RepoPath("models/k3-nano"));
  options.memory = 10'000'000;
  ExpectFinding(Examine(options, PlantedHost()), kFault, "memory.below-floor", "--memory 10.0 MB: expected at least");
}

TEST(Machine, ABudgetBeyondTheMachineIsFound) {
  DoctorOptions options = OptionsFor("");
  options.memory = uint64_t{64} << 30;
  ExpectFinding(Examine(options, PlantedHost()), kWarning, "memory.over-asked");
}

TEST(StateFolder, OfAnotherUserIsFound) {
  const TempFolder state;
  DoctorOptions options = OptionsFor("");
  options.state_folder = state.path();
  PlantedHost host;
  host.owners[state.path()] = 33;
  ExpectFinding(Examine(options, host), kWarning, "state.wrong-owner", "user 33");
  host.unwritable.insert(state.path());
  ExpectFinding(Examine(options, host), kFault, "state.not-writable", "user 1000");
}

TEST(StateFolder, ThatAnybodyMayWriteIsFound) {
  const TempFolder state;
  DoctorOptions options = OptionsFor("");
  options.state_folder = state.path();
  PlantedHost host;
  host.modes[state.path()] = 0777;
  ExpectFinding(Examine(options, host), kWarning, "state.writable-by-others");
}

TEST(StateFolder, ThatIsYetToBeMadeIsLookedForInItsParent) {
  const TempFolder parent;
  DoctorOptions options = OptionsFor("");
  options.state_folder = parent.path() + "/a/b";
  PlantedHost host;
  EXPECT_EQ(Problems(Examine(options, host)), "");
  host.unwritable.insert(parent.path());
  ExpectFinding(Examine(options, host), kFault, "state.not-writable", parent.path());
  EXPECT_FALSE(fs::exists(parent.path() + "/a"));
}

TEST(StateFolder, OldAndDamagedDriveProfilesAreFound) {
  const TempFolder state;
  DoctorOptions options = OptionsFor(RepoPath("models/k3-nano"));
  options.state_folder = state.path();
  PlantedHost host;
  ExpectFinding(Examine(options, host), kNote, "profile.none");
  DriveProfile profile;
  profile.identity = host.drive.identity;
  profile.device = host.drive.device;
  profile.measured_unix_seconds = host.now - 24 * 3600;
  profile.bytes_per_second = 1e9;
  profile.block_bytes = 1 << 20;
  profile.depth = 8;
  ASSERT_TRUE(StoreDriveProfile(state.path(), profile));
  ExpectFinding(Examine(options, host), FindingState::kOk, "profile.fresh");
  host.now += int64_t{365} * 24 * 3600;
  ExpectFinding(Examine(options, host), kWarning, "profile.stale", "366 days");
  std::ofstream(DriveProfilePath(state.path(), host.drive.identity)) << "{\"format\":";
  ExpectFinding(Examine(options, host), kWarning, "profile.damaged");
}

}  // namespace
}  // namespace deltafin::test
