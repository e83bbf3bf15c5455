/* llm.c's training steps by the clock: llmc_step BATCH TOKENS STEPS. Its train_gpt2.c as it is, but for
 * main(), which knows one length of sequences, and wants weights and tokens from files: here any length, on
 * random ones. Prints a line of JSON a step. perf/train_compare.py compiles it, beside a clone of
 * https://github.com/karpathy/llm.c that is no part of this repository. */
#define TESTING /* what train_gpt2.c leaves its main() out for */
#include "train_gpt2.c"

/* Of one tensor: norms' weights are 1, biases 0, the others random with llm.c's own spread. */
static void fill(float* values, size_t count, int tensor, uint64_t* state) {
  const int is_norm = tensor == 2 || tensor == 8 || tensor == 14;
  const int is_matrix = tensor < 2 || tensor == 4 || tensor == 6 || tensor == 10 || tensor == 12;
  for (size_t i = 0; i < count; ++i) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    values[i] = is_norm ? 1.0f : is_matrix ? ((float)(*state >> 40) / (1 << 24) - 0.5f) * 0.07f : 0.0f;
  }
}

static GPT2 random_model(int longest) {
  GPT2 model = {0};
  const GPT2Config config = {.max_seq_len = longest,
                             .vocab_size = 50257,
                             .padded_vocab_size = 50304,
                             .num_layers = 12,
                             .num_heads = 12,
                             .channels = 768};
  model.config = config;
  fill_in_parameter_sizes(model.param_sizes, model.config);
  for (size_t i = 0; i < NUM_PARAMETER_TENSORS; ++i) model.num_parameters += model.param_sizes[i];
  model.params_memory = malloc_and_point_parameters(&model.params, model.param_sizes);
  model.mean_loss = -1.0f;
  uint64_t state = 1;
  float* values = model.params_memory;
  for (int i = 0; i < NUM_PARAMETER_TENSORS; values += model.param_sizes[i++])
    fill(values, model.param_sizes[i], i, &state);
  return model;
}

static double milliseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int count, char** words) {
  const int B = count == 4 ? atoi(words[1]) : 0, T = count == 4 ? atoi(words[2]) : 0;
  const int steps = count == 4 ? atoi(words[3]) : 0;
  if (B < 1 || T < 1 || steps < 1) {
    fprintf(stderr, "usage: llmc_step BATCH TOKENS STEPS\n");
    return 2;
  }
  GPT2 model = random_model(T > 1024 ? T : 1024);
  int* tokens = mallocCheck(((size_t)B * T + 1) * sizeof(int)); /* targets are those that come next */
  srand(1);
  for (size_t i = 0; i <= (size_t)B * T; ++i) tokens[i] = rand() % model.config.vocab_size;
  for (int step = 0; step < steps; ++step) {
    const double wall = milliseconds(CLOCK_MONOTONIC), processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
    gpt2_forward(&model, tokens, tokens + 1, B, T);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    printf("{\"loss\": %.9g, \"ms\": %.3f, \"processor_ms\": %.3f}\n", model.mean_loss,
           milliseconds(CLOCK_MONOTONIC) - wall, milliseconds(CLOCK_PROCESS_CPUTIME_ID) - processor);
    fflush(stdout);
  }
  free(tokens);
  gpt2_free(&model);
  return 0;
}
