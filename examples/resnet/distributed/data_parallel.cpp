// SPDX-License-Identifier: Apache-2.0
#include "data_parallel.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace resnet {
namespace {

constexpr std::int64_t metrics_floats = sizeof(Metrics) / sizeof(float);

std::string text_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) (((text += name) += '\n') += value) += '\n';
  return text;
}

Facts parse_facts(const std::string& text) {
  Facts facts;
  std::istringstream lines(text);
  for (std::string name, value; std::getline(lines, name) && std::getline(lines, value);)
    facts.emplace_back(name, value);
  return facts;
}

std::string value_in(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& fact) { return fact.first == name; });
  return found == facts.end() ? "(nothing)" : found->second;
}

}  // namespace

DataParallel::DataParallel(const penstock::Ranks& ranks, const DistributedOptions& options)
    : ranks_(ranks), options_(options) {
  communicator_ = make_communicator(ranks, {.timeout = options.timeout});
  steps_.emplace(*communicator_);
  if (world_size() > 1) side_.emplace();
}

std::string DataParallel::named(const std::string& program) const {
  return world_size() == 1 ? program : program + ": rank " + std::to_string(rank());
}

NetworkOptions DataParallel::network_options(NetworkOptions options) {
  if (world_size() == 1) return options;
  options.ranks = world_size();
  if (options_.synchronised_batch_norm)
    options.divided = DividedBatch{rank(), world_size(),
                                   [this](float* values, std::int64_t count, cudaStream_t stream) {
                                     sum(values, count, stream);
                                   }};
  return options;
}

void DataParallel::agree(Facts facts) {
  const BucketOptions& buckets = options_.buckets;
  facts.insert(facts.end(), {{"--sync-batch-norm", options_.synchronised_batch_norm ? "on" : "off"},
                             {"--first-bucket", std::to_string(buckets.first) + " bytes"},
                             {"--bucket", std::to_string(buckets.others) + " bytes"}});
  const std::vector<std::string> all = communicator_->all_gather(text_of(facts));
  const Facts first = parse_facts(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const Facts other = parse_facts(all[rank]);
    for (const auto& [name, value] : first) {
      const std::string its = value_in(other, name);
      if (its == value) continue;
      std::ostringstream why;
      why << "rank " << rank << " has another " << name << " than rank 0: " << its << ", not "
          << value << "; all ranks need the same program, options and data";
      throw std::invalid_argument(why.str());
    }
    throw std::invalid_argument("rank " + std::to_string(rank) +
                                " is of another program than rank 0");
  }
}

/// All that is collective runs on one stream, in the same order on each rank.
void DataParallel::sum(float* values, std::int64_t count, cudaStream_t stream) {
  side_->fork(stream);
  communicator_->all_reduce(values, count, Precision::fp32, side_->get());
  side_->join(stream);
}

void DataParallel::broadcast(const MemoryBlock& block, cudaStream_t stream) {
  side_->fork(stream);
  communicator_->broadcast(block.data, static_cast<std::int64_t>(block.bytes), 0, side_->get());
  side_->join(stream);
}

void DataParallel::share(Network& network, cudaStream_t stream) {
  buckets_.emplace(network.gradient_memory(), *communicator_, options_.buckets);
  if (world_size() == 1) return;
  for (const MemoryBlock& block : network.state_memory()) broadcast(block, stream);
  synchronize(stream);
}

void DataParallel::share_statistics(Network& network, cudaStream_t stream) {
  if (world_size() == 1) return;
  broadcast(network.statistics_memory(), stream);
  synchronize(stream);
}

bool DataParallel::sum_metrics(Network& network, bool wants_to_end, cudaStream_t stream) {
  if (world_size() == 1) return wants_to_end;
  const std::string wish = wants_to_end ? "end" : "go on";
  const std::vector<std::string> wishes = communicator_->all_gather(wish);
  sum(&network.metrics()->loss, metrics_floats, stream);
  synchronize(stream);
  return std::count(wishes.begin(), wishes.end(), "end") > 0;
}

void DataParallel::backward(Network& network, cudaStream_t stream) {
  if (world_size() == 1) return network.backward(stream);
  side_->fork(stream);
  communicator_->all_reduce(&network.metrics()->loss, metrics_floats, Precision::fp32,
                            side_->get());
  communicator_->all_reduce(steps_->wish(), 1, Precision::fp32, side_->get());
  buckets_->begin();
  network.backward(stream,
                   [&](const GradientOffsets& from) { buckets_->ready(from, *side_, stream); });
  side_->join(stream);
}

}  // namespace resnet
