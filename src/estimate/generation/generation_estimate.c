#include "estimate/generation/generation_estimate.h"

#include "comm/comm_fake.h"
#include "estimate/program_estimate.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_steps.h"
#include "generate/generator/sound_decoder.h"
#include "plan/ops/rates.h"

#include <math.h>

typedef struct pricing {
    const weft_generation_estimator *p;
    weft_generator *g;
    weft_rank_links links;
    weft_generation_estimate *out;
    double touch; /* seconds per byte used for the first time */
    double kernels, exact;
    /* decoder: seconds of each rank in this round of tiles; last estimated program; maximum bytes
     * of a program */
    double *decoding;
    int64_t round, largest;
    const weft_program *last;
    weft_program_cost cost;
} pricing;

static weft_status no_memory(void)
{
    return weft_no_memory("the estimate of a layout");
}

static weft_status spend(pricing *w, const weft_program *program, double times,
                         weft_program_cost *cost)
{
    WEFT_TRY(weft_program_cost_of(&w->links, program, false, cost));
    w->kernels += times * cost->compute;
    w->exact += times * cost->exact;
    return WEFT_OK;
}

/* Adds the bytes that this rank sends in one run, by mesh axis. */
static void add_wire_bytes(const weft_graph *g, int64_t axis[WEFT_MAX_AXES])
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (!weft_op_is_collective(node->op))
            continue;
        const weft_attr_comm *attr = node->attr;
        axis[attr->axis] += weft_node_cost(g, n).wire_bytes;
    }
}

/* Counts the weights of every denoiser and text encoder once. */
static void count_parameters(const weft_generator *g, weft_generation_estimate *out)
{
    for (int i = 0; i < g->model.experts; i++)
        out->parameters += weft_graph_param_count(g->parts.denoiser[i].graph);
    for (int i = 0; i < g->model.text.encoders; i++)
        out->text_parameters += weft_graph_param_count(g->parts.encoder[i].graph);
}

/* Counts every denoiser program as often as the trajectory runs it. A step may run two predictions
 * (heun), use guidance or not, or use another expert. The estimate of a step is the mean over all
 * steps. Savings of feature caches are unknown in advance and not counted. */
static weft_status estimate_steps(pricing *w)
{
    weft_generator *g = w->g;
    weft_generation_estimate *out = w->out;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(g, part);
    const double windows = (double)g->shape.windows.count, steps = (double)weft_generator_steps(g);
    int64_t calls[WEFT_GENERATOR_DENOISERS];
    weft_program_cost cost;
    double wire = 0, sent[WEFT_MAX_AXES] = {0};
    WEFT_TRY(weft_generator_answers(g, calls));
    for (int i = 0; i < parts; i++) {
        const double runs = windows * (double)calls[i], each = runs / steps;
        if (!calls[i])
            continue;
        WEFT_TRY(spend(w, part[i]->program, runs, &cost));
        out->runs += (int64_t)runs;
        out->step += each * cost.seconds;
        out->compute += each * (cost.compute + cost.update);
        out->exposed += each * cost.exposed;
        out->hidden += each * cost.hidden;
        out->flops += each * (double)weft_graph_cost(part[i]->own).flops;
        int64_t bytes[WEFT_MAX_AXES] = {0}, sum = 0;
        add_wire_bytes(part[i]->own, bytes);
        for (int a = 0; a < WEFT_MAX_AXES; a++) {
            sum += bytes[a];
            sent[a] += each * (double)bytes[a];
        }
        wire += each * (double)sum;
    }
    out->wire = (int64_t)wire;
    for (int a = 0; a < WEFT_MAX_AXES; a++)
        out->sent[a] = (int64_t)sent[a];
    for (int i = 0; i < g->model.text.encoders; i++) {
        WEFT_TRY(spend(w, g->parts.encoder[i].program, 1, &cost));
        out->text += cost.seconds;
    }
    return WEFT_OK;
}

/* Ends a round of tiles: the first rank collects every tile before its next tile begins. */
static void end_round(pricing *w)
{
    double longest = 0;
    for (int i = 0; i < w->p->ranks; i++) {
        longest = fmax(longest, w->decoding[i]);
        w->decoding[i] = 0;
    }
    w->out->decode += longest;
}

/* Distributes tiles over the ranks in turn. Without tiling, the first rank decodes the frame. */
static weft_status_code estimate_tile(void *user, int64_t tile, const weft_program *program,
                                      int64_t times)
{
    pricing *w = user;
    const int64_t bytes = weft_program_bytes(program);
    if (program != w->last)
        WEFT_TRY(weft_program_cost_of(&w->links, program, false, &w->cost));
    if (tile / w->p->ranks != w->round)
        end_round(w);
    w->last = program;
    w->round = tile / w->p->ranks;
    w->largest = bytes > w->largest ? bytes : w->largest;
    w->decoding[tile % w->p->ranks] += (double)times * w->cost.seconds;
    return WEFT_OK;
}

/* The first rank decodes the sound of a video before its frames. */
static weft_status estimate_sound(pricing *w)
{
    weft_program_cost cost;
    if (!w->g->decoder.sound)
        return WEFT_OK;
    const weft_program *program = weft_sound_decoder_program(w->g->decoder.sound);
    WEFT_TRY(weft_program_cost_of(&w->links, program, false, &cost));
    w->out->decode += cost.seconds + w->touch * (double)weft_program_bytes(program);
    return WEFT_OK;
}

static weft_status estimate_decoding(pricing *w)
{
    w->decoding = weft_calloc(w->p->ranks, sizeof *w->decoding);
    weft_status_code status = WEFT_OK;
    WEFT_GO(w->decoding ? weft_vae_works(w->g->decoder.vae, WEFT_VAE_DECODER, estimate_tile, w)
                        : no_memory());
    end_round(w);
out:
    w->out->decode += w->touch * (double)w->largest;
    weft_free(w->decoding);
    return status;
}

/* Seconds of first use of memory by the programs before the decoder, in the first step. */
static double estimate_first_touch(const pricing *w)
{
    weft_program *list[WEFT_MAX_TEXT_ENCODERS + WEFT_GENERATOR_DENOISERS];
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(w->g, part);
    int count = 0;
    for (int i = 0; i < w->g->model.text.encoders; i++)
        list[count++] = w->g->parts.encoder[i].program;
    for (int i = 0; i < parts; i++)
        list[count++] = part[i]->program;
    return w->touch * (double)weft_programs_bytes(list, count);
}

static weft_status estimate_video(pricing *w)
{
    weft_generation_estimate *out = w->out;
    const double steps = (double)weft_generator_steps(w->g), batch = (double)w->g->options.batch;
    w->links = (weft_rank_links){w->p->cluster, &w->g->layout.mesh};
    w->touch = w->p->cluster->device.rates ? w->p->cluster->device.rates->touch : 0;
    out->mesh = w->g->layout.mesh;
    out->steps = (int64_t)steps;
    out->peak = weft_generator_bytes_of(w->g, true);
    count_parameters(w->g, out);
    out->first = estimate_first_touch(w);
    weft_generator_tiles(w->g, out->tiles);
    WEFT_TRY(estimate_steps(w));
    WEFT_TRY(estimate_decoding(w));
    WEFT_TRY(estimate_sound(w));
    out->video = (out->text + out->first + steps * out->step) / batch + out->decode;
    out->exact = w->kernels > 0 ? fmin(1, w->exact / w->kernels) : 0;
    return WEFT_OK;
}

weft_status weft_generation_estimate_open(const weft_generation_estimator *estimator,
                                          weft_generator *generator, weft_generation_estimate *out)
{
    pricing w = {.p = estimator, .g = generator, .out = out};
    *out = (weft_generation_estimate){.legal = true, .fits = true};
    return estimate_video(&w);
}

/* Opens a generator with the layout as rank 0, without other ranks, and estimates it. */
static weft_status estimate_layout(const weft_generation_estimator *estimator,
                                   const weft_parallel *parallel, bool stream,
                                   weft_generation_estimate *out)
{
    weft_generator_options options = *estimator->options;
    weft_generator *generator = NULL;
    weft_comm *comm = NULL;
    *out = (weft_generation_estimate){.parallel = *parallel, .stream = stream};
    options.parallel = parallel;
    options.stream = stream;
    WEFT_TRY(weft_comm_open_single(estimator->ranks, 0, &comm));
    weft_status_code status = weft_generator_open(estimator->folder, &options, comm, &generator);
    out->legal = status == WEFT_OK || status == WEFT_E_MEMORY;
    WEFT_GO(status);
    pricing w = {.p = estimator, .g = generator, .out = out};
    WEFT_GO(estimate_video(&w));
    out->fits = true;
out:
    weft_generator_free(generator);
    weft_comm_free(comm);
    return status;
}

weft_status weft_generation_estimate_own(const weft_generation_estimator *estimator,
                                         weft_generation_estimate *out)
{
    const weft_generator_options *o = estimator->options;
    return estimate_layout(estimator, o->parallel ? o->parallel : &weft_parallel_default, o->stream,
                           out);
}

weft_status weft_generation_estimate_make(const weft_generation_estimator *estimator,
                                          const weft_parallel *parallel, bool stream,
                                          weft_generation_estimate *out)
{
    const weft_status_code status = estimate_layout(estimator, parallel, stream, out);
    if (status != WEFT_E_MEMORY && status != WEFT_E_CONFIG && status != WEFT_E_ARG &&
        status != WEFT_E_UNSUPPORTED && status != WEFT_E_SHAPE)
        return status;
    out->why = weft_arena_strdup(estimator->arena, weft_error_message());
    return WEFT_ALLOCATED(out->why, "the estimate of a layout");
}

void weft_generation_layout_name(const weft_generation_estimate *estimate, weft_buf *out)
{
    weft_parallel_name(&estimate->parallel, out);
    if (estimate->stream)
        weft_buf_printf(out, ", weights stream");
}
