/* Simulated steps whose equal ranks share programs are bitwise the steps of ranks that each plan
 * their own programs, on every axis. */
#include "estimate/training/run_simulation.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#define CONFIG(transformer)                                                                        \
    "out: none\n"                                                                                  \
    "autoencoder:\n"                                                                               \
    "  class: AutoencoderKLWan\n"                                                                  \
    "  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}\n"               \
    "data: {path: none}\n" transformer "text_encoders:\n"                                          \
    "  - class: WeftBytesEncoder\n"                                                                \
    "    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}\n"            \
    "stages: [{steps: 2, batch: 24, frames: 9, height: 64, width: 64}]\n"

static const char uneven[] = CONFIG("transformer:\n"
                                    "  class: WanTransformer3DModel\n"
                                    "  config: {num_layers: 3, num_attention_heads: 5, "
                                    "attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}\n");
static const char even[] = CONFIG("transformer:\n"
                                  "  class: WanTransformer3DModel\n"
                                  "  config: {num_layers: 2, num_attention_heads: 8, "
                                  "attention_head_dim: 16, ffn_dim: 64, freq_dim: 32}\n");
static const char experts[] =
    CONFIG("transformer:\n"
           "  class: WeftMoeTransformer3DModel\n"
           "  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, "
           "freq_dim: 32, first_k_dense_replace: 1, num_routed_experts: 6, num_activated_experts: "
           "2, moe_intermediate_size: 20, n_shared_experts: 1}\n");

typedef struct layout {
    const char *config;
    const char *parallel; /* section of the config */
    int kinds;
} layout;

/* Even sizes have one kind per pipeline device. With uneven rings, every rank receives the shards in
 * another order of sizes. */
static const layout layouts[] = {
    {even, "{tp: 8}", 1},
    {even, "{cp: 8}", 1},
    {even, "{cp: 8, context: ring}", 1},
    {even, "{fsdp: 8}", 1},
    {even, "{dp: 8}", 1},
    {even, "{dp: 8, zero: 2}", 1},
    {even, "{pp: 2, dp: 4, microbatches: 2}", 2},
    {even, "{tp: 2, cp: 4, dp: 2}", 1},
    {uneven, "{tp: 8}", 2},
    {uneven, "{cp: 8}", 1},
    {uneven, "{cp: 7, context: ring}", 7},
    {uneven, "{fsdp: 16}", 3},
    {uneven, "{dp: 16, zero: 1}", 3},
    {uneven, "{dp: 9}", 2},
    {uneven, "{tp: 2, cp: 4, dp: 2}", 2},
    {uneven, "{pp: 3, tp: 2, fsdp: 2, microbatches: 3}", 6},
    {uneven, "{pp: 2, cp: 4, dp: 2, zero: 2, microbatches: 2, schedule: zero-bubble}", 4},
    {experts, "{dp: 4, ep: 4}", 2},
    {experts, "{ep: 4, tp: 2}", 2},
};

typedef struct simulated {
    weft_arena *arena;
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
} simulated;

static void open_run(const layout *l, simulated *s)
{
    static const char path[] = "run.yaml";
    *s = (simulated){.arena = weft_arena_create()};
    const char *text = weft_arena_printf(s->arena, "%sparallel: %s\n", l->config, l->parallel);
    cr_assert_eq(weft_config_parse(s->arena, text, (int64_t)strlen(text), path, NULL, 0,
                                   &weft_run_section, &s->run),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_run_models_read(&s->run, path, &s->models), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cluster_load(s->arena, "v100:2", &s->cluster), WEFT_OK);
}

static void run(simulated *s, bool separate, weft_run_simulation *out)
{
    const weft_run_simulation_setup setup = {.run = &s->run,
                                             .path = "run.yaml",
                                             .models = &s->models,
                                             .train_stage = s->run.train_stages.item,
                                             .cluster = &s->cluster,
                                             .execute = WEFT_EXECUTE_ALWAYS,
                                             .separate = separate,
                                             .arena = s->arena};
    cr_assert_eq(weft_run_simulate(&setup, out), WEFT_OK, "%s", weft_error_message());
    cr_assert(out->step.executed);
}

/* One element each, so that Criterion's workers do not get pointers of another process. */
ParameterizedTestParameters(rank_kinds, equal_ranks_share_programs)
{
    static int index[sizeof layouts / sizeof *layouts];
    for (int i = 0; i < (int)(sizeof index / sizeof *index); i++)
        index[i] = i;
    return cr_make_param_array(int, index, sizeof index / sizeof *index);
}

ParameterizedTest(int *index, rank_kinds, equal_ranks_share_programs)
{
    const layout *l = &layouts[*index];
    simulated s;
    weft_run_simulation merged, separate;
    open_run(l, &s);
    run(&s, false, &merged);
    run(&s, true, &separate);
    const weft_simulated_step *a = &merged.step, *b = &separate.step;
    cr_assert_eq(b->kinds, b->ranks);
    cr_expect_eq(a->kinds, l->kinds, "%s: %d kinds", l->parallel, a->kinds);
    for (int r = 0; r < a->ranks; r++)
        cr_expect_eq(memcmp(&a->rank[r], &b->rank[r], sizeof a->rank[r]), 0, "%s: rank %d",
                     l->parallel, r);
    cr_expect_eq(memcmp(a->sent, b->sent, sizeof a->sent), 0, "%s", l->parallel);
    cr_expect_eq(memcmp(a->planned, b->planned, sizeof a->planned), 0, "%s", l->parallel);
    cr_expect(a->seconds == b->seconds && a->update_seconds == b->update_seconds &&
                  a->idle == b->idle && merged.seconds == separate.seconds &&
                  merged.idle == separate.idle,
              "%s: %.17g s, %.17g s", l->parallel, a->seconds, b->seconds);
    weft_run_simulation_free(&merged);
    weft_run_simulation_free(&separate);
    weft_arena_free(s.arena);
}
