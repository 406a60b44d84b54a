/* The pipeline planner beside the figures of PULSE §VII: `make bench-pipeline` writes
 * bench/plan/pipeline.md. Four ways to train on the paper's two clusters are laid out by the
 * planner's own code and run on the schedule clock:
 *
 *   PULSE   2P stages, skips collocated, balanced (Eq. 1), wave schedule
 *   Hanayo  2P stages cut block-wise, wave schedule; skips are stacked and relayed
 *   1F1B    P stages cut block-wise; skips are stacked and relayed
 *   ZeRO-2  data parallel only, optimizer states and gradients sharded
 *
 * Sends are synchronised (they occupy their device), gradients are reduced after the last backward:
 * both as in Eq. 15. Replicas are neighbours, so pipelines cross nodes. P, G and b are those that
 * are best for PULSE; the others run with the same (§VII), or with the largest smaller b that fits.
 */
#include "cli/published/unet_list.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pulse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 256, MOST_B = 128 };
typedef enum method { PULSE, HANAYO, ONE_F_ONE_B, ZERO_2, PULSE_BLOCKWISE } method;

typedef struct run {
    double throughput; /* samples/s, 0: does not fit or cannot be cut */
    double bytes;      /* per sample, forward and backward, without gradients of weights */
    double memory;     /* fullest device */
    double share;      /* of the iteration that is communication on the critical device, roughly */
    int64_t p, g, b;
} run;

static void must(weft_status_code status)
{
    if (status == WEFT_OK)
        return;
    fprintf(stderr, "pipeline bench: %s\n", weft_error_message());
    exit(1);
}

typedef struct setting {
    weft_arena *arena;
    weft_unet_list model;
    weft_cluster cluster;
    weft_fabric fabric;
} setting;

static setting open_setting(const char *model, const char *cluster)
{
    setting s = {.arena = weft_arena_create()};
    must(s.arena ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory"));
    must(weft_unet_costs(s.arena, model, &s.model));
    must(weft_cluster_load(s.arena, cluster, &s.cluster));
    s.fabric = weft_fabric_from_cluster(&s.cluster);
    return s;
}

/* Gradients (or weights) summed over the replicas of one stage device, G neighbours. */
static double all_reduce(const setting *s, int64_t g, double bytes)
{
    const int64_t together = g < s->cluster.devices ? g : s->cluster.devices;
    return 2 * weft_fabric_gather(&s->fabric, g, together, bytes);
}

static run run_pipeline(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    run r = {.p = p, .g = g, .b = b};
    const bool wave = how != ONE_F_ONE_B, relay = how == HANAYO || how == ONE_F_ONE_B;
    const int64_t stages = wave ? 2 * p : p;
    weft_pipe_costs c;
    must(weft_pipe_costs_from_list(s->arena, &s->model.list, &s->cluster.device, (double)b, &c));
    const double node_rate = s->fabric.inter * (double)s->cluster.devices;
    c.lambda = 1;
    c.bandwidth = node_rate;
    c.latency = s->fabric.inter_latency;
    weft_partition part;
    const weft_status_code cut = how == PULSE
                                     ? weft_partition_solve(&c, stages, WEFT_COLLOCATE_ALL, &part)
                                     : weft_partition_blockwise(&c, stages, s->model.block, &part);
    if (cut != WEFT_OK)
        return r;
    int32_t device_of[MOST_STAGES];
    double forward[MOST_STAGES] = {0}, backward[MOST_STAGES] = {0}, kept[MOST_STAGES] = {0},
           send[MOST_STAGES] = {0}, boundary[MOST_STAGES] = {0}, weights[MOST_STAGES] = {0},
           peak[MOST_STAGES];
    weft_stage_map_fill(wave ? WEFT_MAP_FOLD : WEFT_MAP_ROUND, stages, p, device_of);
    r.bytes = 2 * weft_pipeline_bytes(&c, &part, device_of, relay, boundary) / (double)b;
    for (int64_t q = 0; q < stages; q++) {
        for (int64_t i = part.cut[q]; i < part.cut[q + 1]; i++) {
            forward[q] += c.op[i].forward;
            backward[q] += c.op[i].backward;
            kept[q] += c.op[i].activation_bytes;
            weights[device_of[q]] += c.op[i].parameter_bytes;
        }
        if (q + 1 == stages || boundary[q] <= 0)
            continue;
        r.bytes -= s->model.context_bytes; /* goes forward only */
        const int64_t from = device_of[q] * g / s->cluster.devices,
                      to = device_of[q + 1] * g / s->cluster.devices;
        const double flows = (double)(g < s->cluster.devices ? g : s->cluster.devices);
        send[q] = from == to ? s->fabric.intra_latency + boundary[q] / s->fabric.intra
                             : s->fabric.inter_latency + boundary[q] / (node_rate / flows);
    }
    const weft_stage_times times = {.forward = forward,
                                    .backward = backward,
                                    .send = send,
                                    .send_back = send,
                                    .blocking = true};
    weft_schedule schedule;
    weft_schedule_timing timing;
    must(weft_schedule_make(wave ? WEFT_SCHEDULE_WAVE : WEFT_SCHEDULE_1F1B, device_of, stages, p, p,
                            &times, &schedule));
    must(weft_schedule_time(&schedule, &times, &timing));
    must(weft_schedule_memory(&schedule, kept, NULL, peak));
    double most = 0;
    for (int64_t d = 0; d < p; d++) {
        r.memory = fmax(r.memory, 7 * weights[d] + peak[d]); /* Eq. 14 */
        most = fmax(most, weights[d]);
    }
    double compute = 0; /* of the busiest device */
    for (int64_t d = 0; d < p; d++) {
        double busy = 0;
        for (int64_t q = 0; q < stages; q++)
            busy += device_of[q] == d ? (double)p * (forward[q] + backward[q]) : 0;
        compute = fmax(compute, busy);
    }
    const double seconds = timing.seconds + all_reduce(s, g, most);
    r.throughput = r.memory < weft_fabric_usable(&s->fabric) ? (double)(b * p * g) / seconds : 0;
    r.share = 1 - compute / seconds;
    weft_schedule_free(&schedule);
    weft_partition_free(&part);
    return r;
}

static run run_zero(const setting *s, int64_t b)
{
    const int64_t n = weft_cluster_devices(&s->cluster);
    run r = {.p = 1, .g = n, .b = b};
    weft_pipe_costs c;
    must(weft_pipe_costs_from_list(s->arena, &s->model.list, &s->cluster.device, (double)b, &c));
    double compute = 0, kept = 0, weights = 0;
    for (int64_t i = 0; i < c.op_count; i++) {
        compute += c.op[i].forward + c.op[i].backward;
        kept += c.op[i].activation_bytes;
        weights += c.op[i].parameter_bytes;
    }
    r.memory = weights + 6 * weights / (double)n + kept;
    const double seconds = compute + all_reduce(s, n, weights); /* reduce-scatter, then gather */
    r.bytes = 2 * weights / (double)b / 2; /* the paper counts the reduce-scatter */
    r.throughput = r.memory < weft_fabric_usable(&s->fabric) ? (double)(b * n) / seconds : 0;
    r.share = 1 - compute / seconds;
    return r;
}

static run run_method(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    return how == ZERO_2 ? run_zero(s, b) : run_pipeline(s, how, p, g, b);
}

/* The same b, or the largest smaller one that fits. */
static run run_fitting(const setting *s, method how, int64_t p, int64_t g, int64_t b)
{
    run r = run_method(s, how, p, g, b);
    for (b /= 2; b >= 1 && r.throughput == 0; b /= 2)
        r = run_method(s, how, p, g, b);
    return r;
}

/* Best P >= 2, G, b by the clock; p > 0 fixes P. */
static run best_pulse(const setting *s, int64_t p)
{
    run best = {0};
    const int64_t n = weft_cluster_devices(&s->cluster);
    for (int64_t q = 2; q <= n; q++) {
        if (n % q != 0 || (p > 0 && q != p) || 2 * q > MOST_STAGES)
            continue;
        for (int64_t b = 1; b <= MOST_B; b *= 2) {
            const run r = run_pipeline(s, PULSE, q, n / q, b);
            if (r.throughput > best.throughput)
                best = r;
        }
    }
    return best;
}

static void cell(run r, const run *reference)
{
    if (r.throughput == 0) {
        printf(" out of memory |");
        return;
    }
    printf(" %.1f", r.throughput);
    if (reference && reference->throughput > 0 && r.b != reference->b)
        printf(" (b %lld)", (long long)r.b);
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
        printf("| %s | %lld, %lld, %lld |", models[i], (long long)pulse.p, (long long)pulse.g,
               (long long)pulse.b);
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
        printf("| %s | %lld, %lld, %lld |", models[i], (long long)pulse.p, (long long)pulse.g,
               (long long)pulse.b);
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
        printf("| %s | %lld, %lld, %lld |", models[i], (long long)pulse.p, (long long)pulse.g,
               (long long)pulse.b);
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
        weft_pipe_costs c;
        must(weft_pipe_costs_from_list(s.arena, &s.model.list, &s.cluster.device, 32, &c));
        weft_partition a, b;
        must(weft_partition_solve(&c, 16, WEFT_COLLOCATE_ALL, &a));
        must(weft_partition_blockwise(&c, 16, s.model.block, &b));
        printf("| %s | %lld, %lld, %lld | %.1f / %.1f ms (%+.1f %%) | %.1f / %.1f | %+.1f %% |\n",
               models[i], (long long)pulse.p, (long long)pulse.g, (long long)pulse.b,
               1e3 * a.bottleneck, 1e3 * b.bottleneck, 100 * (a.bottleneck / b.bottleneck - 1),
               pulse.throughput, block.throughput,
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
            printf("| %s | %d | %lld |", models[i], 2 << k, (long long)r.b);
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

int main(void)
{
    printf("# Pipelines beside PULSE's figures\n\nMade by `make bench-pipeline` (ten seconds on "
           "one core, no GPU): bench/plan/pipeline.c.\n"
           "Read together with docs/planning-pipelines.md, which explains where and why we "
           "differ.\n\n");
    printf("## Communication volume per sample (Table III)\n\n");
    volumes();
    printf("## Throughput, 2 nodes of 8 V100 (Fig. 10)\n\nOur best P, G, b. Paper: PULSE 274.6 "
           "samples/s on SDv2, 2.40 times 1F1B and about 1.1 times "
           "ZeRO-2; 1.16 to 2.25 times over all.\n\n");
    overall("v100:2");
    printf("With the paper's depth, 8 devices and 16 stages:\n\n");
    at_depth("v100:2", 8);
    printf("## Throughput, 8 nodes of 8 Ascend 910A (Fig. 10)\n\nPaper: up to 2.87 times 1F1B and "
           "2.31 times ZeRO-2.\n\n");
    overall("ascend910a:8");
    printf("With the paper's depth, 8 devices and 16 stages:\n\n");
    at_depth("ascend910a:8", 8);
    printf("## Model sizes, 2 nodes of 8 V100, P 8 (Fig. 12)\n\nPaper: +57.1 %% for UViT 6.0B; "
           "SDv2 7.2B trains while the others are out of memory.\n\n");
    sizes();
    printf("## Balanced against block-wise partition (Fig. 7 and 13)\n\nSlowest stage at "
           "microbatch 32. Paper: forward time -51.2 %% for SDv2 1.7B, little for "
           "Hunyuan-DiT; throughput +85.5 %% for SDv2 2.5B, 1-2 %% for UViT and Hunyuan-DiT.\n\n");
    partition_ablation();
    printf("## Pipeline depth on 8 V100 (Fig. 14)\n\n");
    degrees();
    return 0;
}
