/* The pipeline planner compared with the figures of PULSE, section VII. `make bench-pipeline`
 * writes bench/plan/pipeline.md. The planner's own code plans four ways to train on the paper's two
 * clusters, and the schedule clock runs them:
 *
 *   PULSE   2P stages, skips collocated, balanced (Eq. 1), wave schedule
 *   Hanayo  2P stages cut block-wise, wave schedule; skips are stacked and relayed
 *   1F1B    P stages cut block-wise, skips are stacked and relayed.
 *   ZeRO-2  data parallel only, optimizer states and gradients sharded
 *
 * Sends are synchronised (they occupy their device), gradients are reduced after the last backward:
 * both as in Eq. 15. Replicas are neighbours, so pipelines cross nodes. P, G and b are the best of
 * PULSE; the others run with the same values (section VII), or with the largest smaller b that
 * fits. */
#include "breakdown.h"
#include "methods.h"

#include <math.h>
#include <stdio.h>

static void cell(run r, const run *reference)
{
    if (r.throughput == 0) {
        printf(" out of memory |");
        return;
    }
    printf(" %.1f", r.throughput);
    if (reference && reference->throughput > 0 && r.b != reference->b)
        printf(" (b %" PRId64 ")", r.b);
    printf(" |");
}

static void ratio(run a, run b)
{
    if (b.throughput > 0)
        printf(" %.2f |", a.throughput / b.throughput);
    else
        printf(" - |");
}

static void overall(const char *cluster)
{
    static const char *const models[] = {"uvit-2.7b", "sdv2-4.6b", "hunyuan-dit-3b"};
    printf("| model | P, G, b | PULSE | Hanayo | 1F1B | ZeRO-2 | / Hanayo | / 1F1B | / ZeRO-2 "
           "|\n|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++) {
        setting s = open_setting(models[i], cluster);
        const run pulse = best_pulse(&s, 0),
                  hanayo = run_fitting(&s, HANAYO, pulse.p, pulse.g, pulse.b),
                  plain = run_fitting(&s, ONE_F_ONE_B, pulse.p, pulse.g, pulse.b),
                  zero = run_fitting(&s, ZERO_2, 1, 1, pulse.b);
        printf("| %s | %" PRId64 ", %" PRId64 ", %" PRId64 " |", models[i], pulse.p, pulse.g,
               pulse.b);
        cell(pulse, NULL);
        cell(hanayo, &pulse);
        cell(plain, &pulse);
        cell(zero, &pulse);
        ratio(pulse, hanayo);
        ratio(pulse, plain);
        ratio(pulse, zero);
        printf("\n");
        weft_arena_free(s.arena);
    }
    printf("\n");
}

/* The paper's depth (Table III: 16 stages in a wave) instead of our best. */
static void at_depth(const char *cluster, int64_t p)
{
    static const char *const models[] = {"uvit-2.7b", "sdv2-4.6b", "hunyuan-dit-3b"};
    printf("| model | P, G, b | PULSE | / Hanayo | / 1F1B | / ZeRO-2 | not computing: PULSE, 1F1B, "
           "ZeRO-2 |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++) {
        setting s = open_setting(models[i], cluster);
        const run pulse = best_pulse(&s, p),
                  hanayo = run_fitting(&s, HANAYO, pulse.p, pulse.g, pulse.b),
                  plain = run_fitting(&s, ONE_F_ONE_B, pulse.p, pulse.g, pulse.b),
                  zero = run_fitting(&s, ZERO_2, 1, 1, pulse.b);
        printf("| %s | %" PRId64 ", %" PRId64 ", %" PRId64 " |", models[i], pulse.p, pulse.g,
               pulse.b);
        cell(pulse, NULL);
        ratio(pulse, hanayo);
        ratio(pulse, plain);
        ratio(pulse, zero);
        printf(" %.0f %%, %.0f %%, %.0f %% |\n", 100 * pulse.share, 100 * plain.share,
               100 * zero.share);
        weft_arena_free(s.arena);
    }
    printf("\n");
}

static void sizes(void)
{
    static const char *const models[] = {
        "uvit-1b",   "uvit-2.7b", "uvit-6b",          "sdv2-1.7b",        "sdv2-2.5b",
        "sdv2-4.6b", "sdv2-7.2b", "hunyuan-dit-0.8b", "hunyuan-dit-1.5b", "hunyuan-dit-3b"};
    printf("| model | P, G, b | PULSE | Hanayo | 1F1B | over the better one "
           "|\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < 10; i++) {
        setting s = open_setting(models[i], "v100:2");
        const run pulse = best_pulse(&s, 8),
                  hanayo = run_fitting(&s, HANAYO, pulse.p, pulse.g, pulse.b),
                  plain = run_fitting(&s, ONE_F_ONE_B, pulse.p, pulse.g, pulse.b);
        printf("| %s | %" PRId64 ", %" PRId64 ", %" PRId64 " |", models[i], pulse.p, pulse.g,
               pulse.b);
        cell(pulse, NULL);
        cell(hanayo, &pulse);
        cell(plain, &pulse);
        const double other = fmax(hanayo.throughput, plain.throughput);
        if (other > 0)
            printf(" %+.1f %% |\n", 100 * (pulse.throughput / other - 1));
        else
            printf(" - |\n");
        weft_arena_free(s.arena);
    }
    printf("\n");
}

static void partition_ablation(void)
{
    static const char *const models[] = {"uvit-1b",         "uvit-2.7b", "sdv2-1.7b",
                                         "sdv2-2.5b",       "sdv2-4.6b", "hunyuan-dit-0.8b",
                                         "hunyuan-dit-1.5b"};
    printf("| model | P, G, b | slowest stage, balanced / block-wise | throughput, balanced / "
           "block-wise | gain |\n|---|---|---|---|---|\n");
    for (int i = 0; i < 7; i++) {
        setting s = open_setting(models[i], "v100:2");
        const run pulse = best_pulse(&s, 8),
                  block = run_fitting(&s, PULSE_BLOCKWISE, pulse.p, pulse.g, pulse.b);
        weft_pp_costs c;
        must(weft_pp_costs_from_list(s.arena, &s.model.list, &s.cluster.device, 32, &c));
        weft_partition a, b;
        must(weft_partition_solve(&c, 16, WEFT_COLLOCATE_ALL, &a));
        must(weft_partition_blockwise(&c, 16, s.model.block, &b));
        printf("| %s | %" PRId64 ", %" PRId64 ", %" PRId64
               " | %.1f / %.1f ms (%+.1f %%) | %.1f / %.1f | %+.1f %% |\n",
               models[i], pulse.p, pulse.g, pulse.b, 1e3 * a.bottleneck, 1e3 * b.bottleneck,
               100 * (a.bottleneck / b.bottleneck - 1), pulse.throughput, block.throughput,
               block.throughput > 0 ? 100 * (pulse.throughput / block.throughput - 1) : NAN);
        weft_partition_free(&a);
        weft_partition_free(&b);
        weft_arena_free(s.arena);
    }
    printf("\n");
}

static void degrees(void)
{
    static const char *const models[] = {"uvit-1b", "sdv2-1.7b", "hunyuan-dit-1.5b"};
    static const char *const paper[3][3] = {
        {"134.7", "", "114.7"}, {"186.2, 0.77 MB", "257.0", "4.84 MB"}, {"13.6 MB", "", "95.3 MB"}};
    printf("| model | P | b | samples/s | MiB per sample | paper |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            setting s = open_setting(models[i], "v100:1");
            const run r = best_pulse(&s, 2 << k);
            printf("| %s | %d | %" PRId64 " |", models[i], 2 << k, r.b);
            cell(r, NULL);
            printf(" %.2f | %s |\n", r.bytes / 1048576, paper[i][k]);
            weft_arena_free(s.arena);
        }
    printf("\n");
}

static void volumes(void)
{
    static const struct {
        const char *model, *name, *paper;
        method how;
        int64_t p, b;
    } rows[] = {
        {"uvit-2.7b", "PULSE, 910A", "28.22", PULSE, 8, 16},
        {"uvit-2.7b", "1F1B, V100 (P 4)", "102.80", ONE_F_ONE_B, 4, 16},
        {"uvit-2.7b", "1F1B, 910A (P 16)", "403.13", ONE_F_ONE_B, 16, 16},
        {"uvit-2.7b", "ZeRO-2, V100 (b 16)", "318.08", ZERO_2, 1, 16},
        {"hunyuan-dit-3b", "PULSE", "95.29", PULSE, 8, 2},
        {"hunyuan-dit-3b", "1F1B (P 8)", "916.64", ONE_F_ONE_B, 8, 2},
        {"hunyuan-dit-3b", "ZeRO-2, V100 (b 2)", "2981.18", ZERO_2, 1, 2},
        {"sdv2-4.6b", "PULSE, V100", "6.71", PULSE, 8, 32},
        {"sdv2-4.6b", "PULSE, 910A (P 16)", "9.28", PULSE, 16, 32},
        {"sdv2-4.6b", "1F1B, V100 (P 8)", "61.05", ONE_F_ONE_B, 8, 32},
        {"sdv2-4.6b", "ZeRO-2, V100 (b 32)", "276.48", ZERO_2, 1, 32},
    };
    printf("| model | method | MiB per sample | paper |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setting s = open_setting(rows[i].model, "v100:2");
        const run r = run_method(&s, rows[i].how, rows[i].p, 1, rows[i].b);
        printf("| %s | %s | %.2f | %s |\n", rows[i].model, rows[i].name, r.bytes / 1048576,
               rows[i].paper);
        weft_arena_free(s.arena);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : NULL;
    printf("# Pipelines compared with PULSE's figures\n\n`make bench-pipeline` writes this page "
           "(bench/plan/pipeline.c; ten seconds on one core).\n"
           "docs/explanation/planning-pipelines.md explains the differences.\n\n");
    printf(
        "## Time of ZeRO-3 on 8 V100 (Fig. 2)\n\nPaper: communication is \"around 30 %%\" of the "
        "training time of Hunyuan-DiT. Plot: pulse-fig-2.svg.\n\n");
    figure_2(folder);
    printf("## Bytes between 4 devices, one sample forward, 1F1B (Fig. 3)\n\nPaper: skips are "
           "\"85.5 %%-90 %%\" in UViT and SDv2. Plot: pulse-fig-3.svg.\n\n");
    figure_3(folder);
    printf("## Communication volume per sample (Table III)\n\n");
    volumes();
    printf(
        "## Throughput, 2 nodes of 8 V100 (Fig. 10)\n\nThe best P, G and b of weft. Paper: PULSE "
        "has 274.6 samples/s on SDv2.\nThis is 2.40 times 1F1B and about 1.1 times ZeRO-2; over "
        "all models 1.16 to 2.25 times.\n\n");
    overall("v100:2");
    printf("With the paper's depth, 8 devices and 16 stages:\n\n");
    at_depth("v100:2", 8);
    printf("## Time per sample, 2 nodes of 8 V100 (Fig. 11)\n\nPaper: the computation is similar.\n"
           "PULSE communicates up to 90 %% less time than 1F1B and 63 %% less than ZeRO-2.\n"
           "This is \"<= 30 %%\" of its iteration. P and b follow from Table III. Plot: "
           "pulse-fig-11.svg.\n\n");
    figure_11(folder);
    printf("## Throughput, 8 nodes of 8 Ascend 910A (Fig. 10)\n\nPaper: up to 2.87 times 1F1B and "
           "2.31 times ZeRO-2.\n\n");
    overall("ascend910a:8");
    printf("With the paper's depth, 8 devices and 16 stages:\n\n");
    at_depth("ascend910a:8", 8);
    printf("## Model sizes, 2 nodes of 8 V100, P 8 (Fig. 12)\n\nPaper: +57.1 %% for UViT 6.0B; "
           "SDv2 7.2B trains while the others are out of memory.\n\n");
    sizes();
    printf("## Balanced against block-wise partition (Fig. 7 and 13)\n\nSlowest stage at "
           "microbatch 32.\nPaper: forward time -51.2 %% for SDv2 1.7B, little for Hunyuan-DiT.\n"
           "Throughput +85.5 %% for SDv2 2.5B, 1-2 %% for UViT and Hunyuan-DiT.\n\n");
    partition_ablation();
    printf("## Pipeline depth on 8 V100 (Fig. 14)\n\n");
    degrees();
    return 0;
}
