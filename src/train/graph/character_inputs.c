#include "train/graph/character_inputs.h"

#include "graph/builder_helpers.h"
#include "train/graph/control.h"
#include "train/graph/sample_dropout.h"

bool weft_run_moves_character(const weft_run_models *m)
{
    return weft_run_trains_denoiser(m) &&
           weft_model_takes_port(&m->denoiser).form == WEFT_FRAME_CONDITION_CHARACTER;
}

weft_value weft_character_inputs_data(weft_graph *g, const weft_run_models *m, weft_shape latents)
{
    weft_shape image = latents, clip = latents;
    image.dim[1] = m->lead;
    clip.dim[1] -= m->lead;
    const weft_value part[] = {weft_input(g, "batch.image", WEFT_F32, image),
                               weft_input(g, "batch.latents", WEFT_F32, clip)};
    return weft_concat(g, part, WEFT_COUNT(part), 1);
}

/* Marks and latents as channels. */
static weft_value channels(weft_graph *g, weft_value marks, weft_value latents)
{
    return weft_concat(g, (weft_value[]){marks, latents}, 2, 4);
}

/* Pixels of the face; black for samples that control.face_dropout chooses. */
static weft_value face(weft_graph *g, const weft_run *run, const weft_run_models *m,
                       const weft_model_size *size, weft_value key)
{
    const weft_value pixels = weft_model_input(g, &m->denoiser, size, WEFT_PORT_FACE, "batch.");
    const double dropout = run->control.face_dropout;
    if (dropout <= 0)
        return pixels;
    const weft_value kept = weft_sample_kept(g, key, WEFT_RNG_FACE, dropout, 5);
    return weft_add(g, weft_mul(g, pixels, kept), weft_affine(g, kept, 1, -1));
}

/* Marks and given latents of the clip, as channels. */
static weft_value clip_channels(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                weft_shape clip, weft_value key)
{
    const bool replaces = run->control.background[0];
    const int64_t shared = run->control.window_overlap;
    weft_shape marks = clip;
    marks.dim[4] = m->grid.factor[0];
    weft_value kept =
        replaces ? weft_input(g, "batch.marks", WEFT_F32, marks) : weft_fill(g, WEFT_F32, marks, 0);
    weft_value given =
        weft_control_latents(g, run, replaces ? "batch.background" : "batch.grey", clip);
    if (!shared)
        return channels(g, kept, given);
    /* whole latent frames: the autoencoder takes this number of frames */
    const int64_t frames = weft_grid_latent_frames(&m->grid, shared);
    const weft_value alone =
        weft_sample_kept(g, key, WEFT_RNG_OVERLAP, run->control.overlap_share, 5);
    weft_shape first = marks;
    first.dim[1] = frames;
    const weft_value part[] = {weft_fill(g, WEFT_F32, first, 1),
                               weft_slice(g, kept, 1, frames, clip.dim[1] - frames)},
                     overlap = weft_control_latents(g, run, "batch.overlap", clip);
    kept = weft_sample_choose(g, alone, kept, weft_concat(g, part, WEFT_COUNT(part), 1));
    given = weft_sample_choose(g, alone, given, overlap);
    return channels(g, kept, given);
}

weft_value weft_character_inputs_given(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                       const weft_model_size *denoised,
                                       const weft_character_batch *batch, weft_ports *ports)
{
    const double scale = weft_noise_process_scale(weft_run_process(run), &run->noise);
    weft_model_size size = *denoised;
    weft_shape clip = batch->latents, marks = clip;
    clip.dim[1] -= m->lead;
    marks.dim[1] = m->lead;
    marks.dim[4] = m->grid.factor[0];
    size.image = m->image_tokens;
    ports->at[WEFT_PORT_CONTROL] = weft_control_latents(g, run, "batch.control", clip);
    ports->at[WEFT_PORT_FACE] = face(g, run, m, &size, batch->key);
    if (m->image_tokens)
        ports->at[WEFT_PORT_IMAGE] =
            weft_input(g, "batch.image_tokens", WEFT_F32,
                       weft_model_shape(&m->denoiser, &size, WEFT_PORT_IMAGE));
    const weft_value image =
        weft_affine(g, weft_slice(g, batch->data, 1, 0, m->lead), 1 / scale, 0);
    const weft_value frame[] = {channels(g, weft_fill(g, WEFT_F32, marks, 1), image),
                                clip_channels(g, run, m, clip, batch->key)};
    return weft_concat(g, frame, WEFT_COUNT(frame), 1);
}

/* Sets the number of tokens of the image encoder, from its graph. */
static weft_status count_tokens(weft_run_models *m, const char *folder)
{
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "the image encoder"));
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_VIDEO] =
        weft_input(g, "in", WEFT_F32, weft_model_shape(&m->image_encoder, &one, WEFT_PORT_VIDEO));
    weft_model_call(g, &m->image_encoder, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &ports);
    const weft_status_code status = weft_graph_check(g);
    weft_shape made = {0};
    if (status == WEFT_OK)
        made = weft_value_get(g, ports.at[WEFT_PORT_IMAGE])->shape;
    weft_graph_free(g);
    WEFT_TRY(status);
    weft_model_size size = one;
    size.image = made.dim[1];
    const weft_shape wanted = weft_model_shape(&m->denoiser, &size, WEFT_PORT_IMAGE);
    m->image_tokens = made.dim[1];
    return wanted.dim[1] == made.dim[1] && wanted.dim[2] == made.dim[2]
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_CONFLICT,
                            WEFT_AT(.file = folder, .key = "control.image_encoder"),
                            "the image encoder returns %" PRId64 " tokens of width %" PRId64
                            ", and %s takes %" PRId64 " of width %" PRId64
                            ". Give the encoder of the published model, or another image_dim.",
                            made.dim[1], made.dim[2], weft_model_class(&m->denoiser), wanted.dim[1],
                            wanted.dim[2]);
}

/* Checks the channels, and that the face has the frames of the clip. */
static weft_status check_shapes(const weft_run_models *m, const char *path)
{
    const weft_model_size some = {1, 2 + m->lead, 1, 1, 1};
    const int64_t z = m->grid.channels, *factor = m->grid.factor,
                  poses = weft_model_shape(&m->denoiser, &some, WEFT_PORT_CONTROL).dim[4],
                  faces = weft_model_shape(&m->denoiser, &some, WEFT_PORT_FACE).dim[1];
    if (poses != z || m->patch.channels != 2 * z + factor[0])
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "transformer", WEFT_NUMBER(z)),
                          "the transformer has %" PRId64 " channels and %" PRId64
                          " of poses. With latents of %" PRId64 " channels it needs %" PRId64
                          ": noisy latents, %" PRId64
                          " marks and given latents. Write config: {latent_channels: %" PRId64 "}.",
                          m->patch.channels, poses, z, 2 * z + factor[0], factor[0], z);
    return m->grid.causal && weft_grid_frames(&m->grid, 2) == faces
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "autoencoder"),
                            "the face has %" PRId64
                            " frames for two latent frames, and this autoencoder has %" PRId64
                            ". Use AutoencoderKLWan.",
                            faces, weft_grid_frames(&m->grid, 2));
}

weft_status weft_character_inputs_read(const weft_run *run, weft_run_models *m, const char *path)
{
    const char *name = weft_model_class(&m->denoiser), *folder = run->control.image_encoder;
    const bool moves = weft_run_moves_character(m),
               tokens = moves && weft_model_takes(&m->denoiser, WEFT_PORT_IMAGE);
    if (run->condition != WEFT_CONDITION_CONTROL)
        return moves ? weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                                  WEFT_AT(.file = path, .key = "condition"),
                                  "%s moves a character by poses and a face. Write condition: "
                                  "control and control: {path: POSES, face: FACES}.",
                                  name)
                     : WEFT_OK;
    WEFT_TRY(weft_control_check_sets(&run->control, moves, tokens, name, path));
    if (!moves)
        return WEFT_OK;
    WEFT_TRY(check_shapes(m, path));
    WEFT_TRY(weft_control_check_overlap(run, &m->grid, path));
    if (!tokens)
        return WEFT_OK;
    WEFT_TRY(weft_error_at(weft_model_open_as(folder, WEFT_ROLE_IMAGE_ENCODER, &m->image_encoder),
                           WEFT_AT(.file = path, .key = "control.image_encoder")));
    return count_tokens(m, folder);
}
