#include "base/sys_topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

namespace deltafin {
namespace {

constexpr int kMostCpus = 1 << 20;

std::string ReadText(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int64_t ReadNumber(const std::string& file) {
  const std::string text = ReadText(file);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool Contains(const std::vector<int>& ascending, int value) {
  return std::binary_search(ascending.begin(), ascending.end(), value);
}

// A speed for each of `cpus`, by the same measure; all 0 when not every one has it.
std::vector<int64_t> Speeds(const std::string& cpu_folder, const std::vector<Cpu>& cpus) {
  for (const char* file : {"/cpu_capacity", "/cpufreq/cpuinfo_max_freq"}) {
    std::vector<int64_t> speeds;
    for (const Cpu& cpu : cpus) speeds.push_back(ReadNumber(cpu_folder + "/cpu" + std::to_string(cpu.id) + file));
    if (std::all_of(speeds.begin(), speeds.end(), [](int64_t speed) { return speed > 0; })) return speeds;
  }
  return std::vector<int64_t>(cpus.size(), 0);
}

void MarkSlow(const std::string& folder, std::vector<Cpu>& cpus) {
  const std::vector<int> atoms = ParseCpuList(ReadText(folder + "/cpu_atom/cpus"));
  if (!atoms.empty()) {
    for (Cpu& cpu : cpus) cpu.fast = !Contains(atoms, cpu.id);
  } else {
    const std::vector<int64_t> speeds = Speeds(folder + "/system/cpu", cpus);
    const int64_t best = *std::max_element(speeds.begin(), speeds.end());
    for (size_t i = 0; i < cpus.size(); ++i) cpus[i].fast = speeds[i] >= best - best / 5;
  }
  // Where only efficiency cores are ours, they are what we have.
  if (std::none_of(cpus.begin(), cpus.end(), [](const Cpu& cpu) { return cpu.fast; }))
    for (Cpu& cpu : cpus) cpu.fast = true;
}

// The core is named by its first processor.
int32_t CoreOf(const std::string& cpu_folder, int cpu) {
  const std::string topology = cpu_folder + "/cpu" + std::to_string(cpu) + "/topology/";
  for (const char* file : {"core_cpus_list", "thread_siblings_list"}) {
    const std::vector<int> siblings = ParseCpuList(ReadText(topology + file));
    if (Contains(siblings, cpu)) return siblings.front();
  }
  return cpu;
}

void AddNodes(const std::string& node_folder, Topology& topology) {
  const std::vector<int> nodes = ParseCpuList(ReadText(node_folder + "/online"));
  std::string with_memory = ReadText(node_folder + "/has_memory");
  if (with_memory.empty()) with_memory = ReadText(node_folder + "/has_normal_memory");
  const std::vector<int> memory = with_memory.empty() ? nodes : ParseCpuList(with_memory);
  for (const int node : nodes) {
    const std::vector<int> members = ParseCpuList(ReadText(node_folder + "/node" + std::to_string(node) + "/cpulist"));
    bool is_ours = false;
    for (Cpu& cpu : topology.cpus) {
      if (!Contains(members, cpu.id)) continue;
      cpu.node = node;
      is_ours = true;
    }
    if (is_ours && Contains(memory, node)) topology.memory_nodes.push_back(node);
  }
  if (topology.memory_nodes.empty()) topology.memory_nodes = {0};
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&]() -> std::optional<int> {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value >= kMostCpus) return std::nullopt;
    at = next;
    return value;
  };
  while (at < end) {
    const std::optional<int> first = number();
    std::optional<int> last = first;
    if (first && at < end && *at == '-') {
      ++at;
      last = number();
    }
    if (first && last)
      for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    at = std::find(at, end, ',');
    if (at < end) ++at;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

Topology ReadSysTopology(const std::string& folder, std::span<const int> allowed) {
  const std::string cpu_folder = folder + "/system/cpu";
  const std::vector<int> online = ParseCpuList(ReadText(cpu_folder + "/online"));
  Topology topology;
  topology.can_pin = true;
  for (const int cpu : allowed)
    if (online.empty() || Contains(online, cpu)) topology.cpus.push_back({cpu, CoreOf(cpu_folder, cpu), 0, true});
  if (topology.cpus.empty()) topology = {{{0, 0, 0, true}}, {}, topology.quota, false};
  MarkSlow(folder, topology.cpus);
  AddNodes(folder + "/system/node", topology);
  return topology;
}

}  // namespace deltafin
