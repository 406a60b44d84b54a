#include "plan/pipeline/schedule.h"
#include "plan/published/unet_list.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static weft_unet_list load(weft_arena *arena, const char *name)
{
    weft_unet_list l;
    cr_assert_eq(weft_unet_costs(arena, name, &l), WEFT_OK, "%s", weft_error_message());
    return l;
}

Test(unet, parameters_are_those_of_the_models)
{
    static const struct {
        const char *name;
        double want, within;
    } sizes[] = {{"sdv2-0.9b", 865.91e6, 1e-4}, /* the published UNet has 865,910,724 */
                 {"hunyuan-dit-1.5b", 1.5e9, 0.05}, {"uvit-0.5b", 501e6, 0.02},
                 {"uvit-1b", 1.0e9, 0.06},          {"uvit-2.7b", 2.7e9, 0.02},
                 {"uvit-6b", 6.0e9, 0.02},          {"sdv2-1.7b", 1.7e9, 0.02},
                 {"sdv2-2.5b", 2.5e9, 5},           {"sdv2-4.6b", 4.6e9, 0.02},
                 {"sdv2-7.2b", 7.2e9, 0.03},        {"hunyuan-dit-0.8b", 0.8e9, 0.05},
                 {"hunyuan-dit-3b", 3.0e9, 0.05}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weft_arena *arena = weft_arena_create();
        const weft_unet_list l = load(arena, sizes[i].name);
        cr_log_info("%s: %.4g parameters, %" PRId64 " operators, %" PRId64
                    " skips, %.3g FLOPs forward",
                    sizes[i].name, l.parameters, l.list.count, l.list.skip_count,
                    weft_op_list_total(&l.list).forward_flops);
        cr_assert(fabs(l.parameters / sizes[i].want - 1) <= sizes[i].within, "%s has %.5g",
                  sizes[i].name, l.parameters);
        cr_assert_float_eq(weft_op_list_total(&l.list).param_bytes, 2 * l.parameters, 1);
        for (int64_t k = 0; k < l.list.skip_count; k++)
            cr_assert(l.list.skip[k].from < l.list.skip[k].to);
        weft_arena_free(arena);
    }
}

/* SD v2 at 64 x 64 latents: 12 skips, 25 blocks, and the 0.80 TFLOP (0.40 T multiply-adds) per
 * forward pass that profilers give for it. */
Test(unet, sd_v2_is_the_published_network)
{
    weft_arena *arena = weft_arena_create();
    weft_unet_list l;
    cr_assert_eq(weft_sdv2_costs(arena, 2, 64, &l), WEFT_OK);
    cr_assert_eq(l.list.skip_count, 12);
    cr_assert_eq(l.block[l.list.count - 1] + 1, 25);
    const double flops = weft_op_list_total(&l.list).forward_flops;
    cr_assert(flops > 0.70e12 && flops < 0.85e12, "%g", flops);
    weft_arena_free(arena);
}

/* Bytes per sample, forward and backward, of a plan (MiB as the paper prints). */
static double per_sample(const weft_unet_list *l, int64_t stages, int64_t devices, bool wave,
                         bool relay, int64_t *crossings)
{
    weft_pp_costs c = {
        .skip = l->list.skip, .skip_count = l->list.skip_count, .op_count = l->list.count};
    c.op = weft_alloc(c.op_count * (int64_t)sizeof *c.op);
    for (int64_t i = 0; i < c.op_count; i++)
        c.op[i] = (weft_pp_op){.forward = l->list.op[i].forward_flops,
                               .output_bytes = l->list.op[i].output_bytes};
    weft_partition p;
    if (relay)
        cr_assert_eq(weft_partition_blockwise(&c, stages, l->block, &p), WEFT_OK, "%s",
                     weft_error_message());
    else
        cr_assert_eq(weft_partition_solve(&c, stages, WEFT_COLLOCATE_ALL, &p), WEFT_OK, "%s",
                     weft_error_message());
    int32_t device_of[64];
    weft_pp_stage_map_fill(wave ? WEFT_MAP_FOLD : WEFT_MAP_ROUND, stages, devices, device_of);
    const double forward = weft_pipeline_bytes(&c, &p, device_of, relay, NULL);
    *crossings = 0;
    for (int64_t s = 0; s + 1 < stages; s++)
        *crossings += device_of[s] != device_of[s + 1];
    weft_partition_free(&p);
    weft_free(c.op);
    return (2 * forward - l->context_bytes * (double)*crossings) / (1 << 20);
}

/* PULSE Table III. Widths were inferred from some of its rows (a boundary's bytes divide them), so
 * bytes alone would prove nothing; the ratios between methods do not contain the width: they are of
 * how many boundaries and skip hops each method crosses, which the schedules and cuts decide. */
Test(unet, table_iii_ratios_are_those_of_the_crossings)
{
    static const struct {
        const char *model;
        int64_t stages, devices; /* of PULSE's wave */
        int64_t other_stages, other_devices;
        bool other_wave;
        double paper, other, within; /* MiB per sample */
    } rows[] = {
        {"uvit-2.7b", 16, 4, 4, 4, false, 24.19, 102.80, 0.001},
        {"uvit-2.7b", 16, 8, 16, 16, false, 28.22, 403.13, 0.08},
        {"uvit-2.7b", 16, 4, 16, 4, true, 24.19, 294.28, 0.12},
        {"hunyuan-dit-3b", 16, 8, 8, 8, false, 95.29, 916.64, 0.02},
        {"hunyuan-dit-3b", 16, 8, 32, 8, true, 95.29, 2885.57, 0.15},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_arena *arena = weft_arena_create();
        const weft_unet_list l = load(arena, rows[i].model);
        int64_t crossings;
        const double pulse =
            per_sample(&l, rows[i].stages, rows[i].devices, true, false, &crossings);
        /* the wave of D devices in S stages crosses S - 1 boundaries but for the folds */
        cr_expect_eq(crossings, rows[i].stages / rows[i].devices * (rows[i].devices - 1),
                     "%s: %" PRId64 " crossings", rows[i].model, crossings);
        const double other = per_sample(&l, rows[i].other_stages, rows[i].other_devices,
                                        rows[i].other_wave, true, &crossings);
        const double ratio = other / pulse, paper = rows[i].other / rows[i].paper;
        cr_log_info("%s: %.2f times PULSE, paper %.2f", rows[i].model, ratio, paper);
        cr_expect(fabs(ratio / paper - 1) <= rows[i].within, "%s: %.3f times, paper %.3f",
                  rows[i].model, ratio, paper);
        weft_arena_free(arena);
    }
}

/* The paper does not give the shapes of its larger SD v2 networks, so only the ratio can be
 * compared: 89 % and 84 % less than 1F1B (Table III), "85.5 %-90 %" of the traffic are skips (Fig.
 * 3). */
Test(unet, sd_v2_saves_as_much)
{
    weft_arena *arena = weft_arena_create();
    const weft_unet_list l = load(arena, "sdv2-4.6b");
    int64_t crossings;
    const double pulse = per_sample(&l, 16, 8, true, false, &crossings),
                 plain = per_sample(&l, 8, 8, false, true, &crossings);
    const double hanayo = per_sample(&l, 32, 16, true, true, &crossings);
    cr_log_info("SD v2 4.6B: PULSE %.2f, 1F1B %.2f, Hanayo %.2f MiB per sample", pulse, plain,
                hanayo);
    cr_assert(pulse < 0.11 * plain && pulse < 0.06 * hanayo);
    weft_arena_free(arena);
}

/* Fig. 3: the share of the skips in what 4 devices send for a sample's forward pass in 1F1B. Of a
 * UViT with 29 blocks, 14 skips: 7 from the first device to the last pass 3 boundaries, 7 of the
 * second pass 1, and 3 outputs: 28 of 31 tensors. The paper has "85.5 %-90 %" for UViT and SDv2. */
Test(unet, most_bytes_are_skips)
{
    static const struct {
        const char *model;
        double low, high;
    } rows[] = {{"uvit-0.5b", 28.0 / 31 - 1e-9, 28.0 / 31 + 1e-9}, {"sdv2-0.9b", 0.855, 0.857}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_arena *arena = weft_arena_create();
        weft_unet_list l = load(arena, rows[i].model);
        int64_t crossings;
        const double all = per_sample(&l, 4, 4, false, true, &crossings);
        l.list.skip_count = 0;
        const double outputs = per_sample(&l, 4, 4, false, true, &crossings),
                     context = l.context_bytes * (double)crossings / (1 << 20);
        const double share = (all - outputs) / (all + context); /* the context goes forward only */
        cr_log_info("%s: %.2f %% are skips", rows[i].model, 100 * share);
        cr_expect(share > rows[i].low && share < rows[i].high, "%s: %.5f", rows[i].model, share);
        weft_arena_free(arena);
    }
}
