#include "generate/generator.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/rng.h"
#include "diffusion/flow.h"
#include "runtime/weights.h"

#include <stdio.h>
#include <string.h>

/* A graph as this rank runs it. `graph` is the whole one, `own` the rank's (the same when there is
 * one rank). */
typedef struct part {
    weft_graph *graph, *own;
    weft_program *program;
} part;

struct weft_generator {
    weft_generator_options options;
    char *folder;
    weft_comm *comm; /* borrowed; NULL: one rank */
    weft_mesh mesh;
    weft_wan_dit_config dit;
    weft_bytes_config text;
    double fps;
    int64_t latent[3];                        /* frames, height, width */
    int64_t latent_floats, text_floats, rows; /* rows: of the denoising batch, prompts x halves */
    weft_store *store;
    part encoder, denoiser;
    weft_vae *vae; /* rank 0 */
    double *sigma;
    float *x, *work, *velocity, *context; /* x (batch,...), context (rows,L,D) */
};

/* ---- reading the folder -------------------------------------------------------------------- */

static weft_status open_part(const char *folder, const char *name, weft_family family,
                             weft_model *model)
{
    char *path = weft_path_join(folder, name);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = weft_model_open(path, model);
    if (status == WEFT_OK && model->family != family)
        status = weft_fail(WEFT_E_UNSUPPORTED, "%s holds a %s, which cannot stand there", path,
                           weft_model_class(model));
    weft_free(path);
    return status;
}

static weft_status load_json(const char *folder, const char *name, json_t **json)
{
    char *path = weft_path_join(folder, name);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        status = weft_json_load(path, json);
    weft_free(path);
    return status;
}

/* Sizes and rate that the model was trained on; scheduler shift. Public folders have no weft.json:
 * then the options must say the size. */
static weft_status read_settings(weft_generator *p)
{
    json_t *own = NULL, *scheduler = NULL;
    weft_generator_options *o = &p->options;
    weft_status_code status = load_json(p->folder, "weft.json", &own);
    if (status == WEFT_OK)
        status = load_json(p->folder, "scheduler/scheduler_config.json", &scheduler);
    int64_t frames, height, width;
    double shift;
    WEFT_GO(status);
    WEFT_GO(weft_json_get_i64_or(own, "frames", "weft.json", 0, &frames));
    WEFT_GO(weft_json_get_i64_or(own, "height", "weft.json", 0, &height));
    WEFT_GO(weft_json_get_i64_or(own, "width", "weft.json", 0, &width));
    WEFT_GO(weft_json_get_f64_or(own, "fps", "weft.json", 16, &p->fps));
    WEFT_GO(weft_json_get_f64_or(scheduler, "shift", "scheduler_config.json", 1, &shift));
    o->frames = o->frames ? o->frames : frames;
    o->height = o->height ? o->height : height;
    o->width = o->width ? o->width : width;
    o->shift = o->shift > 0 ? o->shift : shift;
    if (!o->frames || !o->height || !o->width)
        status = weft_fail(WEFT_E_ARG,
                           "%s has no weft.json that says the size it was trained on: give "
                           "--frames, --height and --width",
                           p->folder);
out:
    json_decref(own);
    json_decref(scheduler);
    return status;
}

/* The VAE takes 8 x 8 pixels to one latent place, the transformer a patch of those to one token. */
static weft_status check_pixels(const weft_generator *p)
{
    const int64_t size[2] = {p->options.height, p->options.width};
    for (int i = 0; i < 2; i++) {
        const int64_t step = 8 * p->dit.patch[1 + i], nearest = (size[i] + step / 2) / step * step;
        if (size[i] % step)
            return weft_fail(WEFT_E_ARG,
                             "--%s %lld: this model makes multiples of %lld; the nearest is %lld",
                             i ? "width" : "height", (long long)size[i], (long long)step,
                             (long long)(nearest ? nearest : step));
    }
    return WEFT_OK;
}

static weft_status check_sizes(weft_generator *p)
{
    const weft_wan_vae_config *vae = weft_vae_config(p->vae);
    const int64_t t = weft_wan_vae_time_factor(vae), s = weft_wan_vae_space_factor(vae);
    if (p->options.frames < 1 || (p->options.frames - 1) % t)
        return weft_fail(WEFT_E_ARG,
                         "--frames %lld: this model makes 1 + %lld n; the nearest is %lld",
                         (long long)p->options.frames, (long long)t,
                         (long long)(1 + (p->options.frames - 1 + t / 2) / t * t));
    p->latent[0] = weft_wan_vae_latent_frames(vae, p->options.frames);
    p->latent[1] = p->options.height / s;
    p->latent[2] = p->options.width / s;
    if (vae->z_dim != p->dit.in_channels || p->dit.in_channels != p->dit.out_channels)
        return weft_fail(
            WEFT_E_FORMAT,
            "%s: the VAE has %lld latent channels, the transformer takes %lld and gives %lld",
            p->folder, (long long)vae->z_dim, (long long)p->dit.in_channels,
            (long long)p->dit.out_channels);
    if (p->text.dim != p->dit.text_dim)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: the text encoder gives width %lld, the transformer takes %lld",
                         p->folder, (long long)p->text.dim, (long long)p->dit.text_dim);
    p->latent_floats = p->latent[0] * p->latent[1] * p->latent[2] * vae->z_dim;
    p->text_floats = p->text.max_length * p->text.dim;
    return WEFT_OK;
}

/* ---- graphs -------------------------------------------------------------------------------- */

static weft_status finish_part(weft_generator *p, part *s)
{
    WEFT_TRY(weft_graph_check(s->graph));
    s->own = s->graph;
    const bool several = p->comm && weft_comm_ranks(p->comm) > 1;
    const weft_pass_setup setup = {.switches = p->options.passes,
                                   .mesh = several ? &p->mesh : NULL,
                                   .rank = several ? weft_comm_rank(p->comm) : 0,
                                   .recipe = &weft_recipe_dp};
    WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &s->own, NULL));
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, &setup, s->own == s->graph, &s->own, NULL));
    const weft_program_options options = {.comm = several ? p->comm : NULL,
                                          .mesh = several ? &p->mesh : NULL};
    return weft_program_compile(s->own, &options, &s->program);
}

static weft_status keep_weights(const weft_generator *p, weft_graph *g, const char *name)
{
    weft_dtype dtype = p->options.weights == WEFT_WEIGHTS_BF16 ? WEFT_BF16 : WEFT_F32;
    if (p->options.weights == WEFT_WEIGHTS_AS_STORED) {
        char *path = weft_path_join(p->folder, name);
        const weft_status_code status =
            path ? weft_weights_dtype(path, &dtype) : weft_fail(WEFT_E_MEMORY, "out of memory");
        weft_free(path);
        WEFT_TRY(status);
    }
    weft_graph_store_weights_as(g, dtype);
    return WEFT_OK;
}

static weft_status build_parts(weft_generator *p)
{
    const weft_wan_dit_config *c = &p->dit;
    weft_graph *g = p->encoder.graph = weft_graph_create();
    weft_graph *d = p->denoiser.graph = weft_graph_create();
    if (!g || !d)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    WEFT_TRY(keep_weights(p, g, "text_encoder"));
    WEFT_TRY(keep_weights(p, d, "transformer"));
    const weft_value tokens =
        weft_input(g, "batch.tokens", WEFT_I32, WEFT_SHAPE(p->rows, p->text.max_length));
    weft_graph_push(g, "text_encoder");
    const weft_value context = weft_bytes_encoder(g, &p->text, tokens);
    weft_graph_pop(g);
    weft_output(g, "text", context);
    WEFT_TRY(finish_part(p, &p->encoder));

    const weft_value latents =
        weft_input(d, "batch.latents", WEFT_F32,
                   WEFT_SHAPE(p->rows, p->latent[0], p->latent[1], p->latent[2], c->in_channels));
    const weft_value timestep = weft_input(d, "batch.timestep", WEFT_F32, WEFT_SHAPE(p->rows));
    const weft_value text =
        weft_input(d, "batch.text", WEFT_F32, WEFT_SHAPE(p->rows, p->text.max_length, p->text.dim));
    weft_graph_push(d, "transformer");
    const weft_value velocity = weft_wan_dit(d, c, latents, timestep, text);
    weft_graph_pop(d);
    weft_output(d, "velocity", velocity);
    return finish_part(p, &p->denoiser);
}

static void part_free(part *s)
{
    weft_program_free(s->program);
    if (s->own != s->graph)
        weft_graph_free(s->own);
    weft_graph_free(s->graph);
}

weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator)
{
    weft_generator *p = weft_alloc(sizeof *p);
    char *vae_folder = weft_path_join(folder, "vae");
    weft_status_code status = WEFT_OK;
    if (!p || !vae_folder) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    p->options = *options;
    p->comm = comm;
    p->mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", comm ? weft_comm_ranks(comm) : 1}}};
    p->folder = weft_strdup(folder);
    p->store = weft_store_create();
    if (!p->folder || !p->store) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    weft_model dit, text;
    if (!weft_path_is_dir(folder)) {
        status = weft_fail(
            WEFT_E_NOT_FOUND,
            "%s: there is no such model folder; weft train writes one as <out>/model", folder);
        goto out;
    }
    WEFT_GO(open_part(folder, "transformer", WEFT_FAMILY_WAN_DIT, &dit));
    WEFT_GO(open_part(folder, "text_encoder", WEFT_FAMILY_BYTES, &text));
    p->dit = dit.dit;
    p->text = text.bytes;
    WEFT_GO(read_settings(p));
    WEFT_GO(check_pixels(p));
    WEFT_GO(
        weft_vae_open(vae_folder, WEFT_VAE_DECODER, p->options.height, p->options.width, &p->vae));
    WEFT_GO(check_sizes(p));
    p->rows = p->options.batch * (p->options.guidance != 1 ? 2 : 1);
    WEFT_GO(build_parts(p));
    *generator = p;
    p = NULL;
out:
    weft_generator_free(p);
    weft_free(vae_folder);
    return status;
}

void weft_generator_free(weft_generator *p)
{
    if (!p)
        return;
    part_free(&p->encoder);
    part_free(&p->denoiser);
    weft_vae_free(p->vae);
    weft_store_free(p->store);
    weft_free(p->folder);
    weft_free(p->sigma);
    weft_free(p->x);
    weft_free(p->work);
    weft_free(p->velocity);
    weft_free(p->context);
    weft_free(p);
}

static int64_t host_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    return 2 * all + weft_sampler_work((weft_sampler_kind)p->options.sampler, all) +
           p->rows * p->text_floats;
}

int64_t weft_generator_bytes(const weft_generator *p)
{
    weft_program *programs[] = {p->encoder.program, p->denoiser.program};
    int64_t bytes = host_floats(p) * (int64_t)sizeof(float) + weft_vae_bytes(p->vae) +
                    weft_programs_bytes(programs, 2);
    for (int i = 0; i < 2; i++)
        bytes += weft_program_plan(programs[i])->source_bytes;
    return bytes;
}

static weft_status load_part(weft_generator *p, part *s, const char *prefix, const char *name)
{
    char *path = weft_path_join(p->folder, name);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = weft_store_init(p->store, s->own, 0);
    if (status == WEFT_OK)
        status = weft_weights_load(p->store, s->own, prefix, path, false);
    weft_free(path);
    return status;
}

weft_status weft_generator_bind(weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    p->sigma = weft_alloc((p->options.steps + 1) * (int64_t)sizeof *p->sigma);
    p->x = weft_alloc_aligned(all * 4);
    p->velocity = weft_alloc_aligned(all * 4);
    p->work = weft_alloc_aligned(weft_sampler_work((weft_sampler_kind)p->options.sampler, all) * 4);
    p->context = weft_alloc_aligned(p->rows * p->text_floats * 4);
    if (!p->sigma || !p->x || !p->velocity || !p->work || !p->context)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld latents", (long long)all);
    weft_flow_schedule(p->options.steps, p->options.shift, p->sigma);
    WEFT_TRY(load_part(p, &p->encoder, "text_encoder.", "text_encoder"));
    WEFT_TRY(load_part(p, &p->denoiser, "transformer.", "transformer"));
    weft_program *programs[] = {p->encoder.program,
                                p->denoiser.program}; /* the results of each are copied at once */
    WEFT_TRY(weft_programs_bind(programs, 2, p->store));
    return weft_vae_bind(p->vae);
}

const weft_generator_options *weft_generator_settings(const weft_generator *p)
{
    return &p->options;
}

double weft_generator_fps(const weft_generator *p)
{
    return p->fps;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Where this rank's rows of the denoising batch begin. */
static int64_t own_rows(const weft_generator *p, int64_t *first)
{
    int64_t count;
    weft_part(p->rows, p->comm ? weft_comm_ranks(p->comm) : 1,
              p->comm ? weft_comm_rank(p->comm) : 0, first, &count);
    return count;
}

/* Rows 0..batch-1 are the prompts, rows batch.. the empty prompt. */
static weft_status encode_text(weft_generator *p, const char *const *prompts, int64_t count)
{
    weft_tensor *tokens = weft_program_input(p->encoder.program, "batch.tokens");
    int64_t first;
    const int64_t rows = own_rows(p, &first);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = first + r;
        weft_bytes_tokens(&p->text, row < count ? prompts[row] : "",
                          (int32_t *)tokens->data + r * p->text.max_length);
    }
    WEFT_TRY(weft_program_run(p->encoder.program));
    memcpy(p->context, weft_program_output(p->encoder.program, "text")->data,
           (size_t)(p->rows * p->text_floats) * 4);
    return WEFT_OK;
}

static weft_status_code velocity_of(void *user, const float *x, double sigma, float *velocity)
{
    weft_generator *p = user;
    float *latents = weft_program_input(p->denoiser.program, "batch.latents")->data;
    float *timestep = weft_program_input(p->denoiser.program, "batch.timestep")->data;
    float *text = weft_program_input(p->denoiser.program, "batch.text")->data;
    const int64_t batch = p->options.batch, all = batch * p->latent_floats;
    int64_t first;
    const int64_t rows = own_rows(p, &first);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(latents + r * p->latent_floats, x + (first + r) % batch * p->latent_floats,
               (size_t)p->latent_floats * 4);
        timestep[r] = (float)(1000 * sigma);
    }
    memcpy(text, p->context + first * p->text_floats, (size_t)(rows * p->text_floats) * 4);
    WEFT_TRY(weft_program_run(p->denoiser.program));
    const float *out = weft_program_output(p->denoiser.program, "velocity")->data;
    memcpy(velocity, out, (size_t)all * 4);
    if (p->rows > batch)
        weft_guidance(velocity, out + all, p->options.guidance, all);
    return WEFT_OK;
}

typedef struct run_state {
    weft_generator *generator;
    const weft_generator_sink *sink;
    int64_t first, prompt;
} run_state;

static weft_status_code on_velocity(void *user, const float *x, double sigma, float *velocity)
{
    return velocity_of(((run_state *)user)->generator, x, sigma, velocity);
}

static weft_status_code on_step(void *user, int64_t done, int64_t steps)
{
    const run_state *r = user;
    return r->sink->step ? r->sink->step(r->sink->user, r->first, done, steps) : WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    const run_state *r = user;
    return r->sink->frames(r->sink->user, r->prompt, first_frame, count, frames);
}

static weft_status decode_all(weft_generator *p, run_state *r, int64_t count)
{
    const weft_wan_vae_config *vae = weft_vae_config(p->vae);
    for (int64_t i = 0; i < count; i++) {
        float *x = p->x + i * p->latent_floats;
        for (int64_t k = 0; k < p->latent_floats; k++)
            x[k] = x[k] * (float)vae->latents_std[k % vae->z_dim] +
                   (float)vae->latents_mean[k % vae->z_dim];
        r->prompt = r->first + i;
        WEFT_TRY(weft_vae_decode(p->vae, x, p->latent[0], on_frames, r));
    }
    return WEFT_OK;
}

weft_status weft_generator_run(weft_generator *p, const char *const *prompts, const uint64_t *seeds,
                               int64_t count, const weft_generator_sink *sink)
{
    const int64_t batch = p->options.batch, all = batch * p->latent_floats;
    run_state r = {.generator = p, .sink = sink};
    const weft_sampler_callbacks callbacks = {
        .velocity = on_velocity, .progress = on_step, .user = &r};
    for (int64_t i = 0; i < count && (!p->comm || weft_comm_rank(p->comm) == 0); i++)
        if ((int64_t)strlen(prompts[i]) > p->text.max_length - 1)
            weft_warn("prompt %lld has %lld bytes; this model reads the first %lld",
                      (long long)i + 1, (long long)strlen(prompts[i]),
                      (long long)p->text.max_length - 1);
    for (r.first = 0; r.first < count; r.first += batch) {
        const int64_t now = count - r.first < batch ? count - r.first : batch;
        WEFT_TRY(encode_text(p, prompts + r.first, now));
        for (int64_t i = 0; i < all; i++) {
            const int64_t prompt = r.first + i / p->latent_floats;
            const uint64_t seed = prompt < count
                                      ? seeds[prompt]
                                      : 0; /* rows beyond the last prompt are thrown away */
            p->x[i] = weft_random_normal(seed, WEFT_RNG_NOISE, (uint64_t)(i % p->latent_floats));
        }
        WEFT_TRY(weft_sampler_run((weft_sampler_kind)p->options.sampler, p->sigma, p->options.steps,
                                  p->x, all, p->work, &callbacks));
        if (!p->comm || weft_comm_rank(p->comm) == 0)
            WEFT_TRY(decode_all(p, &r, now));
    }
    return WEFT_OK;
}
