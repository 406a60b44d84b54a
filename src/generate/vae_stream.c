#include "generate/vae_stream.h"

#include "model/dialect.h"
#include "runtime/weights.h"

#include <string.h>

/* One program of a stream: the beginning or the continuation of one half; or the whole of it. */
typedef struct stage {
    weft_graph *graph;
    weft_program *program;
    int64_t in_frames, out_frames;
} stage;

struct weft_vae {
    weft_model model;
    weft_grid grid;
    char *folder;
    int64_t height, width;
    int64_t latents[2]; /* latent frames of FIRST and NEXT; NEXT 0: FIRST takes the whole video */
    weft_store *store;
    weft_dtype weights;         /* that the file has and the store keeps */
    stage encode[2], decode[2]; /* FIRST, NEXT; graph NULL when the half is not wanted */
};

static weft_status build_stage(weft_vae *v, stage *s, bool decoder, weft_stream stream)
{
    const weft_call call = {decoder ? WEFT_CALL_DECODE : WEFT_CALL_ENCODE, stream};
    weft_ports ports = weft_ports_none();
    weft_graph *g = s->graph = weft_graph_create();
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the VAE's graph");
    weft_graph_store_weights_as(g, v->weights);
    const int64_t latents = v->latents[stream == WEFT_STREAM_NEXT],
                  frames = stream == WEFT_STREAM_NEXT ? latents * v->grid.factor[0]
                                                      : weft_grid_frames(&v->grid, latents);
    s->in_frames = decoder ? latents : frames;
    s->out_frames = decoder ? frames : latents;
    const weft_port port = decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO;
    const weft_model_size size = {1, s->in_frames,
                                  decoder ? v->height / v->grid.factor[1] : v->height,
                                  decoder ? v->width / v->grid.factor[2] : v->width, 0};
    ports.at[port] = weft_input(g, "in", WEFT_F32, weft_model_shape(&v->model, &size, port));
    weft_model_call(g, &v->model, call, false, &ports);
    weft_output(g, "out",
                decoder ? weft_clamp(g, ports.at[WEFT_PORT_RECONSTRUCTION], -1, 1)
                        : ports.at[WEFT_PORT_MEAN]);
    WEFT_TRY(weft_graph_check(g));
    return weft_program_compile(g, &(weft_program_options){0}, &s->program);
}

static void stage_free(stage *s)
{
    weft_program_free(s->program);
    weft_graph_free(s->graph);
}

static weft_status takes_frames(const weft_vae *v, int64_t frames)
{
    char rule[32];
    return weft_grid_takes_frames(&v->grid, frames)
               ? WEFT_OK
               : weft_fail(WEFT_E_SHAPE, "the VAE takes %s frames, not %lld",
                           weft_grid_rule(&v->grid, rule), (long long)frames);
}

/* Pieces as the model's norms and caches want them: what does not divide goes first. */
static void cut(weft_vae *v, int64_t frames)
{
    const int64_t latents = weft_grid_latent_frames(&v->grid, frames), piece = v->grid.piece;
    const bool whole = !piece || latents <= piece;
    v->latents[0] = whole ? latents : piece + latents % piece;
    v->latents[1] = whole || latents == v->latents[0] ? 0 : piece;
}

weft_status weft_vae_open(const char *folder, int halves, int64_t frames, int64_t height,
                          int64_t width, weft_vae **vae)
{
    weft_model model;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_AUTOENCODER, &model));
    weft_vae *v = weft_alloc(sizeof *v);
    if (!v)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the VAE");
    v->model = model;
    v->grid = weft_model_grid(&model);
    v->height = height;
    v->width = width;
    v->folder = weft_strdup(folder);
    v->store = weft_store_create();
    weft_status_code status = WEFT_OK;
    if (!v->folder || !v->store) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for the VAE");
        goto out;
    }
    if (height < 1 || width < 1 || height % v->grid.factor[1] || width % v->grid.factor[2]) {
        status = weft_fail(WEFT_E_SHAPE, "%lldx%lld: the VAE takes multiples of %lldx%lld pixels",
                           (long long)width, (long long)height, (long long)v->grid.factor[2],
                           (long long)v->grid.factor[1]);
        goto out;
    }
    WEFT_GO(takes_frames(v, frames));
    cut(v, frames);
    WEFT_GO(weft_weights_dtype(folder, &v->weights));
    for (int i = 0; i < 2 && v->latents[i]; i++) {
        const weft_stream stream = i               ? WEFT_STREAM_NEXT
                                   : v->latents[1] ? WEFT_STREAM_FIRST
                                                   : WEFT_STREAM_ALONE;
        if (halves & WEFT_VAE_ENCODER)
            WEFT_GO(build_stage(v, &v->encode[i], false, stream));
        if (halves & WEFT_VAE_DECODER)
            WEFT_GO(build_stage(v, &v->decode[i], true, stream));
    }
    *vae = v;
    return WEFT_OK;
out:
    weft_vae_free(v);
    return status;
}

void weft_vae_free(weft_vae *v)
{
    if (!v)
        return;
    for (int i = 0; i < 2; i++) {
        stage_free(&v->encode[i]);
        stage_free(&v->decode[i]);
    }
    weft_store_free(v->store);
    weft_free(v->folder);
    weft_free(v);
}

const weft_grid *weft_vae_grid(const weft_vae *v)
{
    return &v->grid;
}

/* Numbers of one latent frame. */
static int64_t latent_frame(const weft_vae *v)
{
    return (v->height / v->grid.factor[1]) * (v->width / v->grid.factor[2]) * v->grid.channels;
}

/* The programs there are, FIRST before NEXT of each half. */
static int programs_of(const weft_vae *v, weft_program *programs[4])
{
    const stage *all[4] = {&v->encode[0], &v->encode[1], &v->decode[0], &v->decode[1]};
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (all[i]->program)
            programs[count++] = all[i]->program;
    return count;
}

int64_t weft_vae_bytes(const weft_vae *v)
{
    weft_program *programs[4];
    const int count = programs_of(v, programs);
    int64_t bytes = weft_programs_bytes(programs, count);
    /* params and caches are shared by FIRST and NEXT */
    for (int i = v->latents[1] ? 1 : 0; i < count; i += v->latents[1] ? 2 : 1)
        bytes += weft_program_plan(programs[i])->source_bytes;
    return bytes;
}

static weft_status load_half(weft_vae *v, stage s[2])
{
    const int count = v->latents[1] ? 2 : 1;
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_store_init(v->store, s[i].graph, 0));
    const weft_graph *g = s[count - 1].graph;
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(v->model.family, g, "", v->folder, &file));
    return weft_weights_load(v->store, g, "", file, true);
}

weft_status weft_vae_bind(weft_vae *v)
{
    weft_program *programs[4];
    if (v->encode[0].program)
        WEFT_TRY(load_half(v, v->encode));
    if (v->decode[0].program)
        WEFT_TRY(load_half(v, v->decode));
    return weft_programs_bind(programs, programs_of(v, programs), v->store,
                              NULL); /* one runs at a time */
}

/* A video of another length than that of the opening is cut as that one was. */
static weft_status pieces_fit(const weft_vae *v, int64_t latents)
{
    const int64_t rest = latents - v->latents[0];
    return rest == 0 || (rest > 0 && v->latents[1] && rest % v->latents[1] == 0)
               ? WEFT_OK
               : weft_fail(
                     WEFT_E_SHAPE,
                     "the VAE was opened for pieces of %lld and %lld latent frames, which %lld "
                     "are not made of",
                     (long long)v->latents[0], (long long)v->latents[1], (long long)latents);
}

static weft_status run_stage(stage *s, const float *in, const float **out)
{
    weft_tensor *input = weft_program_input(s->program, "in");
    memcpy(input->data, in, (size_t)weft_shape_count(&input->shape) * sizeof(float));
    WEFT_TRY(weft_program_run(s->program));
    *out = weft_program_output(s->program, "out")->data;
    return WEFT_OK;
}

weft_status weft_vae_encode(weft_vae *v, const float *video, int64_t frames, float *latents)
{
    WEFT_TRY(takes_frames(v, frames));
    WEFT_TRY(pieces_fit(v, weft_grid_latent_frames(&v->grid, frames)));
    const int64_t frame = v->height * v->width * 3, latent = latent_frame(v);
    for (int64_t at = 0, t = 0; at < frames;) {
        stage *s = &v->encode[at ? 1 : 0];
        const float *out;
        WEFT_TRY(run_stage(s, video + at * frame, &out));
        memcpy(latents + t * latent, out, (size_t)(s->out_frames * latent) * sizeof(float));
        at += s->in_frames;
        t += s->out_frames;
    }
    return WEFT_OK;
}

weft_status weft_vae_decode(weft_vae *v, const float *latents, int64_t latent_frames,
                            weft_frames_fn *sink, void *user)
{
    const int64_t latent = latent_frame(v);
    int64_t frame = 0;
    WEFT_TRY(pieces_fit(v, latent_frames));
    for (int64_t t = 0; t < latent_frames;) {
        stage *s = &v->decode[t ? 1 : 0];
        const float *out;
        WEFT_TRY(run_stage(s, latents + t * latent, &out));
        WEFT_TRY(sink(user, frame, s->out_frames, out));
        frame += s->out_frames;
        t += s->in_frames;
    }
    return WEFT_OK;
}
