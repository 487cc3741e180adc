// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parameters of a network and where each lies in one block of floats: first what decays
// (convolutions, the last layer's weights), then what does not (batch norm's, the last layer's
// bias). Names, shapes and the order of elements within a shape are torchvision's; memory may
// differ: format, and zero channels that the first convolution's input is padded with.
//
//   const ParameterTable table(layers, image_channels, Format::nhwc);
//   block[table.place(parameter, element)]         // element: counted in torchvision's order

#include <cstdint>
#include <string>
#include <vector>

#include "architecture.hpp"

namespace resnet {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;    ///< in the block, of floats
  std::int64_t channels = 0;  ///< of a convolution's input, in memory; 0: no convolution
  double deviation = 0;       ///< at the start: of a normal distribution,
  double bound = 0;           ///< or of a uniform one,
  double constant = 0;        ///< or this

  std::int64_t count() const;
};

/// running_mean or running_var of a batch norm, in a block of their own.
struct Statistic {
  std::string name;
  std::int64_t channels = 0, offset = 0;
  float start = 0;
};

class ParameterTable {
 public:
  /// `image_channels`: without padding. Throws std::invalid_argument unless the stem's shape has as
  /// many or more.
  ParameterTable(const Layers& layers, std::int64_t image_channels, Format format);

  /// In torchvision's order.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Statistic>& statistics() const { return statistics_; }
  /// Names of the batch norms.
  const std::vector<std::string>& norms() const { return norms_; }

  /// Floats of the block that decay, and that do not; offsets are multiples of 64, so there are
  /// gaps, which stay 0.
  std::int64_t weights() const { return weights_; }
  std::int64_t others() const { return others_; }
  std::int64_t all() const { return weights_ + others_; }
  std::int64_t statistics_size() const { return statistics_size_; }

  /// Throw std::out_of_range for a name that is not there.
  const Parameter& parameter(const std::string& name) const;
  const Statistic& statistic(const std::string& name) const;

  /// Where in the block an element lies.
  std::int64_t place(const Parameter& parameter, std::int64_t element) const;

  /// A block as torchvision starts: Kaiming's normal distribution by fan-out for convolutions,
  /// 1 and 0 for batch norm, a uniform distribution for the last layer. The same numbers for the
  /// same seed, whatever the format.
  std::vector<float> initial(std::uint64_t seed) const;
  std::vector<float> initial_statistics() const;

 private:
  void add(const ConvolutionNorm& layer, std::int64_t channels);
  void add_last_layer(const Layers& layers);
  void lay_out();

  Format format_;
  std::vector<Parameter> parameters_;
  std::vector<Statistic> statistics_;
  std::vector<std::string> norms_;
  std::int64_t weights_ = 0, others_ = 0, statistics_size_ = 0;
};

}  // namespace resnet
