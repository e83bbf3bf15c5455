// Models of every family on the fake driver: forward, loss and backward of one rank and of tensor ranks,
// beside the CPU's. A device address faults on a CPU, so no step's array is touched by the host.
#include "base/workers.h"
#include "device/cuda/operators.h"
#include "loom/device/gpu_setting.h"
#include "model/family_specs.h"
#include "model/objectives/objective.h"
#include "model/split_model.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing {
namespace {

constexpr int64_t kBatch = 4, kTokens = 6, kMasked = 3;
constexpr int32_t kPadding = 1;

/// How far losses, logits and gradients may be from the CPU's, as a part of the largest value of each
/// parameter. In 16 bits a GPU rounds logits and their derivatives, which the CPU has in fp32.
template <typename T>
constexpr double kClose = 1e-5;
template <>
inline constexpr double kClose<bf16> = 0.06;
template <>
inline constexpr double kClose<fp16> = 0.01;

struct Job {
  model::ModelSpec spec;
  std::vector<int32_t> token, target;
  int64_t targets = 0;  // of a sequence

  Job(model::Family family, model::Task task) {
    model::ModelSpec sizes;
    sizes.vocabulary = 37;
    sizes.context = kTokens;
    sizes.width = 32;
    sizes.layers = 2;
    sizes.heads = 4;
    sizes.feed_forward = 40;
    spec = family_spec(family, task, sizes);
    spec.labels = task == model::Task::classification ? 3 : 0;
    if (task != model::Task::causal) spec.padding = kPadding;
    spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = 0.1f;
    if (spec.pooler || spec.head_transform) spec.head_dropout = 0.1f;
    model::complete(spec);
    for (int64_t i = 0; i < kBatch * kTokens; ++i) {
      token.push_back(static_cast<int32_t>(2 + i * i * 5 % 35));
      const bool first = i % kTokens == 0;
      target.push_back(task == model::Task::classification ? (first ? static_cast<int32_t>(i % 3) : -1)
                       : task == model::Task::masked       ? (i % 5 == 2 ? 7 : -1)
                       : i % 7 == 3                        ? -1
                                                           : static_cast<int32_t>((i * 11) % 37));
    }
    if (task != model::Task::causal) {
      token[kTokens - 1] = token[2 * kTokens - 1] = token[2 * kTokens - 2] = kPadding;  // behind the texts
      token[2 * kTokens + 2] = kPadding;                                                // inside one
    }
    if (task == model::Task::classification) targets = 1;
  }
};

template <typename T>
class GpuModels : public OnGpuTable {
 protected:
  std::unique_ptr<SplitModel<T>> model_of(const Job& job, int degree, bool divides,
                                          std::shared_ptr<Setting<T>> place) {
    auto model = std::make_unique<SplitModel<T>>(job.spec, degree, divides, std::move(place));
    Workers workers(1);
    for (const model::Unit& unit : model->units()) {
      std::vector<float> values(static_cast<size_t>(unit.elements));
      model::initialize(workers, unit, 3, 0, values);
      for (float& value : values)
        if (value != 1) value *= 8;  // so that attention and logits have something to say; not of norms
      model->set_parameters(unit.index, values);
    }
    model->pass().training = true;
    model->pass().seed = 9;
    return model;
  }

  void expect_close(SplitModel<T>& got, SplitModel<T>& wanted) {
    for (const model::Unit& unit : wanted.units()) {
      const Doubles there = got.gradients(unit.index), here = wanted.gradients(unit.index);
      for (const model::Parameter& parameter : unit.parameters) {
        const auto part = [&](const Doubles& all) {
          return Doubles(all.begin() + parameter.offset,
                         all.begin() + parameter.offset + parameter.elements());
        };
        EXPECT_LT(error_of(part(there), part(here)), kClose<T>) << parameter.name;
      }
    }
  }

  void expect_same(const Job& job, int degree, bool divides) {
    SCOPED_TRACE(fmt::format("{}, {}, {} ranks{}", model::family_name(job.spec.family),
                             job.spec.objective().name, degree, divides ? ", rows divided" : ""));
    LOOM_ASSERT_OK(job.spec.check());
    const auto cpu = model_of(job, degree, divides, std::make_shared<CpuSetting<T>>()),
               gpu =
                   model_of(job, degree, divides, std::make_shared<GpuSetting<T>>(*device, *queue, *compute));
    const double wanted = cpu->step(job.token, job.target, kBatch, job.targets);
    EXPECT_NEAR(gpu->step(job.token, job.target, kBatch, job.targets), wanted, kClose<T> * wanted);
    expect_close(*gpu, *cpu);
    const auto [loss, right] = cpu->evaluate();
    const auto [loss_there, right_there] = gpu->evaluate();
    EXPECT_NEAR(loss_there, loss, kClose<T> * loss);
    EXPECT_EQ(right_there, right);
    if (degree == 1) {
      EXPECT_LT(error_of(doubles(gpu->logits(kTokens)), doubles(cpu->logits(kTokens))), kClose<T>);
    }
    EXPECT_TRUE(queue->status().ok()) << queue->status().message();
  }
};
using ModelTypes = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(GpuModels, ModelTypes);

template <typename Run>
void for_every_family(model::Task task, Run&& run) {
  for (const model::Family family : kEveryFamily)
    if (model::choices_of(family, task).ok()) run(Job(family, task));
}

TYPED_TEST(GpuModels, CausalOnesTrain) {
  for_every_family(model::Task::causal, [&](const Job& job) { this->expect_same(job, 1, false); });
}
TYPED_TEST(GpuModels, MaskedOnesTrain) {
  for_every_family(model::Task::masked, [&](Job job) {
    this->expect_same(job, 1, false);
    job.targets = kMasked;
    this->expect_same(job, 1, false);
  });
}
TYPED_TEST(GpuModels, ClassifyingOnesTrain) {
  for_every_family(model::Task::classification, [&](const Job& job) { this->expect_same(job, 1, false); });
}
TYPED_TEST(GpuModels, TensorRanksTrainCausalOnes) {
  for_every_family(model::Task::causal, [&](const Job& job) {
    for (const bool divides : {false, true}) this->expect_same(job, 2, divides);
  });
}
TYPED_TEST(GpuModels, TensorRanksTrainTheOthers) {
  for (const model::Task task : {model::Task::masked, model::Task::classification})
    for_every_family(task, [&](Job job) {
      if (task == model::Task::masked) job.targets = kMasked;
      for (const bool divides : {false, true}) this->expect_same(job, 2, divides);
    });
}

/// Weights that give the same bits on both devices are few; that a model gives the same bits twice is not.
TYPED_TEST(GpuModels, GiveTheSameBitsTwice) {
  const Job job(model::Family::roberta, model::Task::masked);
  Doubles first;
  for (int run = 0; run < 2; ++run) {
    const auto gpu = this->model_of(
        job, 1, false, std::make_shared<GpuSetting<TypeParam>>(*this->device, *this->queue, *this->compute));
    gpu->step(job.token, job.target, kBatch, job.targets);
    Doubles all;
    for (const model::Unit& unit : gpu->units()) {
      const Doubles more = gpu->gradients(unit.index);
      all.insert(all.end(), more.begin(), more.end());
    }
    if (run == 0) first = all;
    EXPECT_EQ(all, first);
  }
}

}  // namespace
}  // namespace loom::testing
