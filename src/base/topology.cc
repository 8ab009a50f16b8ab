#include "base/topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace deltafin {
namespace {

// The order in which threads take processors.
std::vector<Cpu> InOrderOfUse(const Topology& topology) {
  struct Place {
    int of_core = 0;  // how many of the core come before
    bool slow = false;
    int of_node = 0;  // how many of the node with the same first two come before
    Cpu cpu;
  };
  std::map<int32_t, int> taken_of_core;
  std::map<std::tuple<int, bool, int32_t>, int> taken_of_node;
  std::vector<Place> places;
  for (const Cpu& cpu : topology.cpus) {
    const int of_core = taken_of_core[cpu.core]++;
    const int of_node = taken_of_node[{of_core, !cpu.fast, cpu.node}]++;
    places.push_back({of_core, !cpu.fast, of_node, cpu});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.of_core, a.slow, a.of_node, a.cpu.node, a.cpu.id) <
           std::tie(b.of_core, b.slow, b.of_node, b.cpu.node, b.cpu.id);
  });
  std::vector<Cpu> cpus;
  for (const Place& place : places) cpus.push_back(place.cpu);
  return cpus;
}

int FastCores(const std::vector<Cpu>& in_order) {
  std::vector<int32_t> cores;
  for (const Cpu& cpu : in_order)
    if (cpu.fast) cores.push_back(cpu.core);
  std::sort(cores.begin(), cores.end());
  return static_cast<int>(std::unique(cores.begin(), cores.end()) - cores.begin());
}

}  // namespace

ThreadPlacement PlaceThreads(const Topology& topology, int threads) {
  const std::vector<Cpu> cpus = InOrderOfUse(topology);
  const double most = std::min(std::ceil(topology.quota), static_cast<double>(cpus.size()));
  ThreadPlacement placement;
  placement.threads = threads;
  if (threads == 0) {
    const int cores = std::max(1, FastCores(cpus));
    placement.threads = most < cores ? std::max(1, static_cast<int>(most)) : cores;
  }
  if (!topology.can_pin || placement.threads > most) return placement;
  for (const Cpu& cpu : cpus)
    if (static_cast<int>(placement.cpus.size()) < placement.threads) placement.cpus.push_back(cpu.id);
  return placement;
}

int DefaultThreads() { return PlaceThreads(MachineTopology(), 0).threads; }

}  // namespace deltafin
