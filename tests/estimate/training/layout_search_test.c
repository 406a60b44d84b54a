/* The search over layouts of a run finds what pricing every combination of its keys finds. */
#include "estimate/training/layout_search.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG(transformer, batch)                                                                 \
    "out: none\n"                                                                                  \
    "autoencoder:\n"                                                                               \
    "  class: AutoencoderKLWan\n"                                                                  \
    "  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}\n"               \
    "data: {path: none}\n" transformer "text_encoders:\n"                                          \
    "  - class: WeftBytesEncoder\n"                                                                \
    "    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}\n"            \
    "stages: [{steps: 2, batch: " #batch ", frames: 9, height: 32, width: 32}]\n"

/* The experts are nearly all of the model, so sums of their gradients decide. */
static const char experts[] = CONFIG(
    "transformer:\n"
    "  class: WeftMoeTransformer3DModel\n"
    "  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, "
    "freq_dim: 32, first_k_dense_replace: 1, num_routed_experts: 4, num_activated_experts: 2, "
    "moe_intermediate_size: 4096, n_shared_experts: 1}\n",
    4);
static const char dense[] = CONFIG("transformer:\n"
                                   "  class: WanTransformer3DModel\n"
                                   "  config: {num_layers: 2, num_attention_heads: 2, "
                                   "attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}\n",
                                   4);
static const char frames_and_places[] =
    CONFIG("transformer:\n"
           "  class: STDiT3\n"
           "  config: {depth: 2, hidden_size: 48, num_heads: 4, caption_channels: 16, "
           "model_max_length: 32, in_channels: 4, pred_sigma: false}\n",
           4);

typedef struct fixture {
    weft_arena *arena;
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
    weft_layout_estimator pricer;
} fixture;

static void open_fixture(fixture *f, const char *config, int ranks)
{
    const char path[] = "run.yaml";
    *f = (fixture){.arena = weft_arena_create()};
    cr_assert_eq(weft_config_parse(f->arena, config, (int64_t)strlen(config), path, NULL, 0,
                                   &weft_run_section, &f->run),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_run_models_read(&f->run, path, &f->models), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cluster_load(f->arena, "h100", &f->cluster), WEFT_OK);
    f->pricer = (weft_layout_estimator){.run = &f->run,
                                        .path = path,
                                        .models = &f->models,
                                        .cluster = &f->cluster,
                                        .ranks = ranks,
                                        .arena = f->arena};
}

/* ---- every combination
 * ------------------------------------------------------------------------- */

typedef struct found {
    double seconds;
    int64_t fitting;
    char best[200];
} found;

static void price(const fixture *f, const weft_parallel *p, found *out)
{
    weft_layout_estimate price;
    cr_assert_eq(weft_layout_estimate_make(&f->pricer, p, &price), WEFT_OK, "%s",
                 weft_error_message());
    if (!price.fits)
        return;
    weft_buf name = {0};
    weft_parallel_name(p, &name);
    if (!out->fitting++ || price.time.total < out->seconds ||
        (price.time.total == out->seconds && strcmp(name.data, out->best) < 0)) {
        out->seconds = price.time.total;
        snprintf(out->best, sizeof out->best, "%s", name.data);
    }
    weft_buf_free(&name);
}

static void price_schedules(const fixture *f, weft_parallel p, found *out)
{
    static const char *const schedule[] = {"gpipe", "1f1b", "interleaved", "wave", "zero-bubble"};
    const int64_t batch = weft_train_stage_bucket(f->run.train_stages.item, 0)->batch;
    if (p.pp == 1) {
        price(f, &p, out);
        return;
    }
    for (int k = 0; k < WEFT_COUNT(schedule); k++)
        for (p.microbatches = p.pp; p.microbatches <= batch; p.microbatches++) {
            p.schedule = schedule[k];
            if (batch % p.microbatches == 0)
                price(f, &p, out);
        }
}

static void price_variants(const fixture *f, weft_parallel p, bool heads, found *out)
{
    static const int kind[] = {WEFT_CP_ULYSSES, WEFT_CP_RING, WEFT_CP_HEADS};
    for (p.zero = 0; p.zero <= 2; p.zero++)
        for (int sequence = 0; sequence < 2; sequence++)
            for (int64_t ring = 1; ring <= p.cp; ring++)
                for (int k = 0; k < WEFT_COUNT(kind); k++) {
                    p.sequence = sequence;
                    p.context = (weft_cp_config){kind[k], p.cp / ring, ring};
                    if (p.cp == 1)
                        p.context.ulysses = p.context.ring = 0;
                    /* another name of the same layout, or an axis that the model does not have */
                    if ((p.dp == 1 && p.zero) || (p.tp == 1 && sequence) || p.cp % ring ||
                        kind[k] == WEFT_CP_RING ||
                        (kind[k] == WEFT_CP_HEADS && (!heads || p.cp / ring == 1)))
                        continue;
                    price_schedules(f, p, out);
                }
}

static found price_all(const fixture *f, bool heads)
{
    found out = {0};
    const int n = f->pricer.ranks;
    weft_parallel p = weft_parallel_default;
    for (p.dp = 1; p.dp <= n; p.dp++)
        for (p.fsdp = 1; p.fsdp <= n; p.fsdp++)
            for (p.ep = 1; p.ep <= n; p.ep++)
                for (p.tp = 1; p.tp <= n; p.tp++)
                    for (p.cp = 1; p.cp <= n; p.cp++)
                        for (p.pp = 1; p.pp <= n; p.pp++)
                            if (p.dp * p.fsdp * p.ep * p.tp * p.cp * p.pp == n)
                                price_variants(f, p, heads, &out);
    return out;
}

static void same_as_all(const fixture *f, bool heads, weft_layout_list *layouts)
{
    weft_buf name = {0};
    const found all = price_all(f, heads);
    cr_assert_eq(weft_layouts_search(&f->pricer, layouts), WEFT_OK, "%s", weft_error_message());
    weft_parallel_name(&weft_layouts_at(layouts, 0)->parallel, &name);
    cr_expect_eq(layouts->fitting, all.fitting,
                 "%" PRId64 " layouts fit, of all combinations %" PRId64, layouts->fitting,
                 all.fitting);
    cr_expect_eq(weft_layouts_at(layouts, 0)->time.total, all.seconds);
    cr_expect_eq(layouts->item[0].score.seconds, all.seconds);
    cr_expect_str_eq(name.data, all.best);
    weft_buf_free(&name);
}

Test(layouts, experts_are_split_where_that_is_fastest)
{
    fixture f;
    weft_layout_list layouts;
    int64_t with_experts = 0;
    open_fixture(&f, experts, 4);
    f.cluster.device.launch =
        0; /* the model is small: launches would hide the bytes of the experts */
    same_as_all(&f, false, &layouts);
    for (int64_t i = 0; i < layouts.count; i++)
        with_experts += layouts.item[i].score.fits && weft_layouts_at(&layouts, i)->parallel.ep > 1;
    cr_expect_gt(with_experts, 10, "%" PRId64 " layouts with ep", with_experts);
    cr_expect_eq(weft_layouts_at(&layouts, 0)->parallel.ep, 4,
                 "the experts are nearly all that is summed");
    weft_arena_free(f.arena);
}

Test(layouts, dense_models_have_no_layout_with_experts)
{
    fixture f;
    weft_layout_list layouts;
    open_fixture(&f, dense, 2);
    same_as_all(&f, false, &layouts);
    for (int64_t i = 0; i < layouts.count; i++)
        cr_expect_eq(weft_layouts_at(&layouts, i)->parallel.ep, 1);
    weft_arena_free(f.arena);
}

Test(layouts, heads_are_tried_of_models_over_frames_and_places)
{
    fixture f;
    weft_layout_list layouts;
    int64_t by_heads = 0;
    open_fixture(&f, frames_and_places, 2);
    same_as_all(&f, true, &layouts);
    for (int64_t i = 0; i < layouts.count; i++)
        by_heads += layouts.item[i].score.fits &&
                    weft_layouts_at(&layouts, i)->parallel.context.kind == WEFT_CP_HEADS;
    cr_expect_eq(by_heads, 1, "%" PRId64 " layouts with context: heads", by_heads);
    weft_arena_free(f.arena);
}
