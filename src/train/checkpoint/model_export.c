#include "train/checkpoint/model_export.h"

#include "base/fs.h"
#include "base/log.h"
#include "exec/store/tensor_shard.h"
#include "exec/store/weights.h"
#include "format/tensors/tensors.h"
#include "generate/conditioning/clip_preprocess.h"
#include "generate/conditioning/visual_condition.h"
#include "model/adapter.h"
#include "model/adapter_write.h"
#include "model/encoders/identity_encoder.h"
#include "prompt/no_text.h"
#include "train/config/run_model.h"
#include "train/graph/history_inputs.h"
#include "train/graph/student_levels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Copies a file in pieces: pages of a mapped file would count as memory of the process. */
static weft_status copy_file(const char *from, const char *to)
{
    enum { PIECE = 1 << 20 };
    weft_file_writer writer;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_file_begin(&writer, to));
    char *piece = weft_alloc(PIECE);
    const int fd = open(from, O_RDONLY | O_CLOEXEC);
    WEFT_GO(WEFT_ALLOCATED(piece, "%s", to));
    int64_t got = fd < 0 ? -1 : PIECE;
    while (got == PIECE) {
        got = weft_read_at(fd, piece, PIECE, writer.bytes);
        if (got < PIECE && errno)
            got = -1;
        if (got > 0)
            WEFT_GO(weft_file_write(&writer, piece, got));
    }
    if (got < 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = from), "cannot read the file"));
    WEFT_GO(weft_file_commit(&writer));
out:
    if (fd >= 0)
        close(fd);
    weft_free(piece);
    weft_file_abort(&writer);
    return status;
}

static bool of_model(const char *name)
{
    return !strcmp(weft_path_extension(name), "json") || weft_tensors_is_file(name);
}

static bool is_safetensors(const char *name)
{
    return !strcmp(weft_path_extension(name), "safetensors");
}

/* Copies the files (not folders) of a model that was not trained, so that the export is complete.
 * Of weights in several formats, it has safetensors. */
static weft_status copy_files(const char *from, const char *to, bool (*wanted)(const char *name))
{
    weft_names names = {0};
    WEFT_TRY(weft_make_dirs(to));
    WEFT_TRY(weft_list_dir(from, false, &names));
    weft_status_code status = WEFT_OK;
    bool safe = false;
    for (int64_t i = 0; i < names.count; i++)
        safe |= is_safetensors(names.name[i]);
    for (int64_t i = 0; i < names.count; i++) {
        char source[1024], target[1024];
        if (safe && weft_tensors_is_file(names.name[i]) && !is_safetensors(names.name[i]))
            continue;
        snprintf(source, sizeof source, "%s/%s", from, names.name[i]);
        snprintf(target, sizeof target, "%s/%s", to, names.name[i]);
        if (!weft_path_is_dir(source) && wanted(names.name[i]))
            WEFT_GO(copy_file(source, target));
    }
out:
    weft_names_free(&names);
    return status;
}

static weft_status save_json(const char *folder, const char *name, json_t *json)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    weft_status_code status = json ? weft_json_save(path, json) : weft_no_memory("%s", path);
    json_decref(json);
    return status;
}

static weft_dtype dtype_of(const weft_export *e)
{
    return e->run->model_dtype == WEFT_MODEL_BF16 ? WEFT_BF16 : WEFT_F32;
}

static void add_to_index(json_t *index, const char *folder, const weft_model *model)
{
    const weft_family *f = model->family;
    json_object_set_new(index, folder, json_pack("[s,s]", f->library, f->class_name));
}

/* The noise process of the last training stage, which sampling uses. */
static weft_noise_process_config process_at_end(const weft_export *e)
{
    const weft_train_stage *train_stage = e->run->train_stages.item;
    const weft_run last =
        weft_train_stage_run(e->run, &train_stage[e->run->train_stages.count - 1]);
    return weft_student_process(&last);
}

/* The guidance scale with which a distilled model generates: a model with a scale input was
 * trained with one. */
static double student_guidance(const weft_export *e)
{
    return weft_model_takes(&e->models->denoiser, WEFT_PORT_GUIDANCE) ? e->run->guidance : 1;
}

/* Settings of a distilled adapter; steps 0: it is not distilled. */
static weft_adapter_settings student_settings(const weft_export *e)
{
    const weft_noise_process_config process = process_at_end(e);
    weft_adapter_settings settings = {0};
    if (!e->run->distill.method)
        return settings;
    settings =
        (weft_adapter_settings){.steps = weft_student_steps(e->run),
                                .guidance = student_guidance(e),
                                .shift = process.flow.by_resolution ? 0 : process.flow.shift};
    snprintf(settings.sampler, sizeof settings.sampler, "%s", process.sampler);
    return settings;
}

/* Folder of the run's vocoder. */
static void vocoder_folder(const weft_run *run, char *folder, size_t bytes)
{
    const bool given = run->sound.vocoder[0];
    snprintf(folder, bytes, "%s%s", given ? run->sound.vocoder : run->sound.autoencoder,
             given ? "" : "/../vocoder");
}

/* Whether videos of the model have tokens of an encoder in the folder image_encoder. A model that
 * was trained with first frames but without tokens also generates without them. */
static bool has_image_encoder(const weft_export *e)
{
    const weft_model *denoiser = &e->models->denoiser;
    const weft_frame_condition how = weft_model_takes_port(denoiser);
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    if (e->models->image_tokens)
        return true;
    return how.form != WEFT_FRAME_CONDITION_NONE && how.form != WEFT_FRAME_CONDITION_EDITED &&
           !how.image_encoder && weft_model_shape(denoiser, &one, WEFT_PORT_IMAGE).rank > 0 &&
           (!how.also_none || e->run->condition != WEFT_CONDITION_FIRST_FRAME);
}

/* The image encoder of the finished model. */
typedef struct image_encoder {
    weft_model model; /* no family: none */
    char folder[1024];
} image_encoder;

/* Opens the run's image encoder, or the one of the pipeline whose transformer is trained. A folder
 * of that pipeline without an encoder is not an error. */
static weft_status open_image_encoder(const weft_export *e, image_encoder *found)
{
    const char *own = e->run->control.image_encoder, *from = e->run->transformer.weights;
    const bool given = e->models->image_tokens > 0;
    *found = (image_encoder){0};
    if (!has_image_encoder(e))
        return WEFT_OK;
    snprintf(found->folder, sizeof found->folder, "%s%s", given ? own : from,
             given ? "" : "/../image_encoder");
    if (!given && (!from[0] || !weft_path_is_dir(found->folder)))
        return WEFT_OK;
    const weft_status_code status =
        weft_model_open_as(found->folder, WEFT_ROLE_IMAGE_ENCODER, &found->model);
    if (status == WEFT_OK || given)
        return status;
    weft_error_clear();
    found->model = (weft_model){0};
    return WEFT_OK;
}

/* Copies the image encoder and its preprocessing. Without an encoder, warns if generation needs
 * one. */
static weft_status write_image_encoder(const weft_export *e, const image_encoder *encoder,
                                       const char *folder)
{
    const weft_frame_condition how = weft_model_takes_port(&e->models->denoiser);
    char from[1100], path[700];
    if (!encoder->model.family) {
        if (has_image_encoder(e) && !how.also_none)
            weft_warning(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = folder, .key = "image_encoder"),
                         "generation with this %s needs an image encoder, and none is next to the "
                         "weights that the run began with; link the folder of one there",
                         weft_model_class(&e->models->denoiser));
        return WEFT_OK;
    }
    snprintf(path, sizeof path, "%s/image_encoder", folder);
    WEFT_TRY(copy_files(encoder->folder, path, of_model));
    for (int i = 0; i < WEFT_CLIP_PROCESSOR_FOLDERS; i++) {
        snprintf(from, sizeof from, "%s/../%s", encoder->folder, weft_clip_processor_folders[i]);
        snprintf(path, sizeof path, "%s/%s", folder, weft_clip_processor_folders[i]);
        if (weft_path_is_dir(from))
            WEFT_TRY(copy_files(from, path, of_model));
    }
    return WEFT_OK;
}

/* Copies the image encoder of the identity and its preprocessing into the folder of the identity
 * encoder. */
static weft_status write_identity_encoder(const weft_export *e, const char *folder)
{
    const char *encoder = e->run->identity.image_encoder;
    char *from, path[700], own[1024];
    if (!e->models->identity_image_encoder.family || weft_comm_rank(e->comm) != 0)
        return WEFT_OK;
    snprintf(path, sizeof path, "%s/identity/" WEFT_IDENTITY_IMAGE_ENCODER, folder);
    WEFT_TRY(copy_files(encoder, path, of_model));
    snprintf(own, sizeof own, "%s/preprocessor_config.json", path);
    if (weft_path_exists(own))
        return WEFT_OK;
    WEFT_TRY(weft_clip_encoder_processor_path(encoder, &from));
    const weft_status_code status = weft_path_exists(from) ? copy_file(from, own) : WEFT_OK;
    weft_free(from);
    return status;
}

/* Adds the image encoder and its preprocessing to the index, the latter as its pipeline has it. */
static weft_status index_image_encoder(const image_encoder *encoder, json_t *index)
{
    char path[1100];
    json_t *published = NULL;
    if (!encoder->model.family)
        return WEFT_OK;
    add_to_index(index, "image_encoder", &encoder->model);
    snprintf(path, sizeof path, "%s/../model_index.json", encoder->folder);
    if (weft_path_exists(path))
        WEFT_TRY(weft_json_load(path, &published));
    for (int i = 0; i < WEFT_CLIP_PROCESSOR_FOLDERS; i++) {
        json_t *entry = json_object_get(published, weft_clip_processor_folders[i]);
        if (entry)
            json_object_set(index, weft_clip_processor_folders[i], entry);
    }
    json_decref(published);
    return WEFT_OK;
}

/* Adds the models of the sound to the index. */
static weft_status index_sound(const weft_export *e, json_t *index)
{
    char folder[1024];
    weft_model vocoder;
    if (!weft_run_has_sound(&e->models->sound))
        return WEFT_OK;
    vocoder_folder(e->run, folder, sizeof folder);
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_VOCODER, &vocoder));
    add_to_index(index, vocoder.family->scope, &vocoder);
    add_to_index(index, e->models->sound.autoencoder.family->scope, &e->models->sound.autoencoder);
    return WEFT_OK;
}

/* Copies the models of the sound. */
static weft_status write_sound(const weft_export *e, const char *folder)
{
    char from[1024], path[700];
    if (!weft_run_has_sound(&e->models->sound))
        return WEFT_OK;
    snprintf(path, sizeof path, "%s/%s", folder, e->models->sound.autoencoder.family->scope);
    WEFT_TRY(copy_files(e->run->sound.autoencoder, path, of_model));
    vocoder_folder(e->run, from, sizeof from);
    snprintf(path, sizeof path, "%s/vocoder", folder);
    return copy_files(from, path, of_model);
}

/* ---- the pipeline of the first weights ------------------------------------------------------- */

/* Returns the model_index.json next to the weights that the run began with, or NULL. A damaged one
 * must not cost the finished training its export. */
static json_t *load_base(const weft_export *e, bool warns)
{
    const char *from = e->run->transformer.weights;
    char path[1100];
    json_t *index = NULL;
    snprintf(path, sizeof path, "%s/../model_index.json", from);
    if (from[0] && weft_path_exists(path) && weft_json_load(path, &index) != WEFT_OK) {
        if (warns)
            weft_warning(WEFT_MSG_TEXT_DAMAGED, WEFT_AT(.file = path),
                         "the finished model lacks the settings and parts of this pipeline: %s",
                         weft_error_message());
        weft_error_clear();
    }
    return index;
}

/* Whether the run began with weights in a folder of this name. */
static bool began_in(const weft_export *e, const char *name)
{
    const char *path = e->run->transformer.weights;
    size_t length = strlen(path);
    const size_t named = strlen(name);
    while (length && path[length - 1] == '/')
        length--;
    return length >= named && !strncmp(path + length - named, name, named) &&
           (length == named || path[length - named - 1] == '/');
}

static const weft_edit_pipeline *edit_pipeline(const weft_export *e, const char *class_name)
{
    const weft_edit_pipeline *edit = e->models->denoiser.family->edit_pipeline;
    while (edit && edit->class_name && (!class_name || strcmp(edit->class_name, class_name)))
        edit++;
    return edit && edit->class_name ? edit : NULL;
}

/* The class of the pipeline. The class of the first weights stays if it is neither for texts nor
 * for first frames, such as a class for editing. Staged pipelines need the noise levels of their
 * stages, which a run does not have. */
static const char *pipeline_class(const weft_export *e, const json_t *base)
{
    const weft_model *denoiser = &e->models->denoiser;
    const bool image = e->run->condition == WEFT_CONDITION_FIRST_FRAME;
    const char *own = weft_model_pipeline(denoiser, image),
               *text = weft_model_pipeline(denoiser, false),
               *was = json_string_value(json_object_get(base, "_class_name")),
               *staged = denoiser->family->staged_pipeline;
    const bool special = was && strcmp(was, text) != 0 &&
                         strcmp(was, weft_model_pipeline(denoiser, true)) != 0 &&
                         (!staged || strcmp(was, staged) != 0);
    return special && !strcmp(own, text) ? was : own;
}

/* Parts of the pipeline of the first weights that generation reads and that no run trains. */
static const struct {
    const char *folder;
    bool expert; /* of other noise levels, for transformers only */
} base_parts[] = {{"guider"}, {"processor"}, {"transformer_2", true}};

static void part_folder(const weft_export *e, int i, char *folder, size_t bytes)
{
    snprintf(folder, bytes, "%s/../%s", e->run->transformer.weights, base_parts[i].folder);
}

/* Whether the export has a part of the pipeline of the first weights. A folder of which only the
 * weights were copied lacks it. An undistilled expert does not fit a distilled one. */
static bool has_part(const weft_export *e, const json_t *base, int i)
{
    const json_t *name = json_array_get(json_object_get(base, base_parts[i].folder), 1);
    char folder[1100];
    part_folder(e, i, folder, sizeof folder);
    return json_is_string(name) && weft_path_is_dir(folder) &&
           (!base_parts[i].expert || (!e->run->distill.method && began_in(e, "transformer")));
}

static bool of_part(const char *name)
{
    return of_model(name) || weft_tokenizer_is_file(name);
}

static weft_status write_parts(const weft_export *e, const json_t *base, const char *folder)
{
    char from[1100], to[700];
    for (int i = 0; i < WEFT_COUNT(base_parts); i++) {
        part_folder(e, i, from, sizeof from);
        snprintf(to, sizeof to, "%s/%s", folder, base_parts[i].folder);
        if (has_part(e, base, i))
            WEFT_TRY(copy_files(from, to, of_part));
    }
    return WEFT_OK;
}

/* Adds the class of the pipeline, and the settings and parts of the pipeline of the first
 * weights. */
static void index_base(const weft_export *e, const json_t *base, json_t *index)
{
    /* a boundary of experts has no meaning without the other expert, which a distilled one gets */
    static const char *const settings[] = {"boundary_ratio", "is_distilled", "is_cfg_zero_star"};
    const bool low = began_in(e, "transformer_2");
    json_object_set_new(index, "_class_name", json_string(pipeline_class(e, base)));
    for (int i = low; i < WEFT_COUNT(settings); i++) {
        json_t *value = json_object_get(base, settings[i]);
        if (value && !json_is_null(value))
            json_object_set(index, settings[i], value);
    }
    for (int i = 0; i < WEFT_COUNT(base_parts); i++)
        if (has_part(e, base, i))
            json_object_set(index, base_parts[i].folder,
                            json_object_get(base, base_parts[i].folder));
}

static weft_status fill_index(const weft_export *e, const json_t *base, const image_encoder *seen,
                              json_t *index)
{
    const weft_noise_process_config process = process_at_end(e);
    const weft_run_models *m = e->models;
    static const char klein[] = "Flux2KleinPipeline"; /* has the field is_distilled */
    const bool image = e->run->condition == WEFT_CONDITION_FIRST_FRAME;
    const char *times_key = m->denoiser.family->times_key;
    index_base(e, base, index);
    if (image && times_key &&
        weft_model_takes_port(&m->denoiser).form == WEFT_FRAME_CONDITION_TIMES)
        json_object_set_new(index, times_key, json_true());
    if (e->run->distill.method && !strcmp(weft_model_pipeline(&m->denoiser, image), klein))
        json_object_set_new(index, "is_distilled", json_true());
    add_to_index(index, m->denoiser.family->scope, &m->denoiser);
    const weft_companion *companion = weft_model_companion(&m->denoiser);
    if (companion)
        json_object_set_new(
            index, companion->folder,
            json_pack("[s,s]", companion->family->library, companion->family->class_name));
    add_to_index(index, m->autoencoder.family->scope, &m->autoencoder);
    if (weft_run_uses_identity(m))
        add_to_index(index, m->identity.family->scope, &m->identity);
    WEFT_TRY(index_image_encoder(seen, index));
    WEFT_TRY(index_sound(e, index));
    for (int r = 0; r < m->text.encoders; r++) {
        const weft_text_encoder *encoder = &m->text.encoder[r];
        add_to_index(index, encoder->row->encoder, &encoder->model);
        if (encoder->connectors.family)
            add_to_index(index, encoder->row->connectors, &encoder->connectors);
        if (encoder->tokenizer[0]) {
            weft_tokenizer *t;
            WEFT_TRY(weft_tokenizer_open(encoder->tokenizer, &t));
            json_object_set_new(index, encoder->row->tokenizer,
                                json_pack("[s,s]", "transformers", weft_tokenizer_class(t)));
            weft_tokenizer_close(t);
        }
    }
    json_object_set_new(index, "scheduler",
                        json_pack("[s,s]", "diffusers",
                                  weft_noise_process_class(weft_run_process(e->run), &process)));
    return WEFT_OK;
}

/* Writes the index, and the parts of the pipeline of the first weights. */
static weft_status write_index(const weft_export *e, const image_encoder *seen, const char *folder)
{
    weft_status_code status = WEFT_OK;
    json_t *base = load_base(e, true), *index = json_object();
    WEFT_GO(WEFT_ALLOCATED(index, "a model index"));
    WEFT_GO(write_parts(e, base, folder));
    WEFT_GO(fill_index(e, base, seen, index));
    status = save_json(folder, "model_index.json", index);
    index = NULL; /* save_json released it */
out:
    json_decref(index);
    json_decref(base);
    return status;
}

/* Copies a frozen text encoder, and the tokenizer of any text encoder. */
static weft_status write_text_encoder(const weft_export *e, const char *folder, int r)
{
    const weft_text_encoder *encoder = &e->models->text.encoder[r];
    char path[700], from[600];
    snprintf(path, sizeof path, "%s/%s", folder, encoder->row->encoder);
    if (e->models->text_frozen >> r & 1)
        WEFT_TRY(copy_files(weft_run_text(e->run, r)->weights, path, of_model));
    if (encoder->connectors.family) {
        char connectors[1024];
        weft_run_connectors_folder(weft_run_text(e->run, r), connectors, sizeof connectors);
        snprintf(path, sizeof path, "%s/%s", folder, encoder->row->connectors);
        WEFT_TRY(copy_files(connectors, path, of_model));
    }
    if (!encoder->tokenizer[0])
        return WEFT_OK;
    snprintf(path, sizeof path, "%s/%s", folder, encoder->row->tokenizer);
    snprintf(from, sizeof from, "%s", encoder->tokenizer);
    char *slash = strrchr(from, '/');
    if (!weft_path_is_dir(from))
        snprintf(slash ? slash : from, slash ? 1 : 2, "%s", slash ? "" : ".");
    return copy_files(from, path, weft_tokenizer_is_file);
}

/* Frames of a generated video by default: as the last clips have, or of whole sections after the
 * first frame (weft_frame_condition.section). */
static int64_t default_frames(const weft_export *e)
{
    const weft_frame_condition how = weft_model_takes_port(&e->models->denoiser);
    if (how.form != WEFT_FRAME_CONDITION_HISTORY || how.precedes || e->models->sections.frames)
        return e->size->frames;
    const int64_t section = how.section * e->models->grid.factor[0];
    const int64_t sections = (e->size->frames + section - 2) / section;
    return 1 + (sections > 1 ? sections : 1) * section;
}

/* Adds the length and the order of sections that were trained with their history. */
static void add_sections(const weft_export *e, json_t *own)
{
    const weft_video_sections *s = &e->models->sections;
    if (!s->frames)
        return;
    json_object_set_new(own, "window", json_integer(weft_history_inputs_window(e->models)));
    if (s->forward && !s->precedes)
        json_object_set_new(own, "sections", json_string("forward"));
}

/* Writes all files of a pipeline except the trained weights. */
static weft_status write_rest(const weft_export *e, const char *folder)
{
    const weft_noise_process_config process = process_at_end(e);
    image_encoder encoder;
    char path[700];
    WEFT_TRY(open_image_encoder(e, &encoder));
    snprintf(path, sizeof path, "%s/%s", folder, e->models->autoencoder.family->scope);
    WEFT_TRY(copy_files(e->run->autoencoder.weights, path, of_model));
    WEFT_TRY(write_sound(e, folder));
    WEFT_TRY(write_image_encoder(e, &encoder, folder));
    for (int r = 0; r < e->models->text.encoders; r++)
        WEFT_TRY(write_text_encoder(e, folder, r));
    snprintf(path, sizeof path, "%s/scheduler", folder);
    WEFT_TRY(weft_make_dirs(path));
    WEFT_TRY(save_json(path, "scheduler_config.json",
                       weft_noise_process_write(weft_run_process(e->run), &process)));
    const char *condition = weft_condition_names[e->run->condition];
    json_t *lengths = json_array();
    for (int r = 0; r < e->models->text.encoders; r++)
        json_array_append_new(lengths, json_integer(weft_run_text(e->run, r)->length));
    json_t *own =
        json_pack("{s:I, s:I, s:I, s:f, s:s*, s:s*, s:o}", "frames", (json_int_t)default_frames(e),
                  "height", (json_int_t)e->size->height, "width", (json_int_t)e->size->width, "fps",
                  e->fps > 0 ? e->fps : 24.0, "condition", e->run->condition ? condition : NULL,
                  "rest", e->models->grey_rest ? "grey" : NULL, "text_lengths", lengths);
    if (own && e->run->distill.method) {
        json_object_set_new(own, "steps", json_integer(weft_student_steps(e->run)));
        json_object_set_new(own, "guidance_scale", json_real(student_guidance(e)));
        if (e->run->distill.context_noise > 0)
            json_object_set_new(own, "context_noise", json_real(e->run->distill.context_noise));
    }
    if (own)
        add_sections(e, own);
    if (own && e->models->denoiser.family && e->models->denoiser.family->negative)
        json_object_set_new(own, "negative", json_true());
    WEFT_TRY(save_json(folder, "weft.json", own));
    return write_index(e, &encoder, folder);
}

/* ---- LoRA ----------------------------------------------------------------------------------- */

/* Collective. Gathers a matrix, unsharded and in f32, on rank 0 (heap). *out is unchanged on other
 * ranks. */
static weft_status take_matrix(const weft_export *e, const char *name, float **out)
{
    const weft_tensor *t = weft_store_find(e->store, name);
    void *made = NULL;
    if (!t)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                          "the tensor does not exist");
    WEFT_TRY(weft_tensor_gather(e->comm, 0, t, &made));
    if (weft_comm_rank(e->comm) == 0) {
        const int64_t bytes = weft_shape_count(&t->whole) * weft_dtype_bytes(WEFT_F32);
        *out = weft_alloc(bytes + 1);
        if (*out)
            memcpy(*out, made ? made : t->data, (size_t)bytes);
    }
    weft_free(made);
    return weft_comm_rank(e->comm) || *out ? WEFT_OK : weft_no_memory("\"%s\"", name);
}

static weft_status take_pair(const weft_export *e, const char *down, size_t module,
                             weft_adapter_pair *pair)
{
    const weft_trainable trainable = weft_run_trainable(e->run, NULL, "");
    const size_t skip = strlen(e->models->denoiser.family->scope) + 1;
    char up[700];
    snprintf(up, sizeof up, "%.*s.lora_B.weight", (int)module, down);
    const weft_tensor *a = weft_store_find(e->store, down), *b = weft_store_find(e->store, up);
    if (!a || !b)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = down),
                          "this matrix or the other one of its pair does not exist");
    *pair = (weft_adapter_pair){.alpha = trainable.alpha,
                                .rank = a->whole.dim[0],
                                .columns = a->whole.dim[1],
                                .rows = b->whole.dim[0]};
    snprintf(pair->module, sizeof pair->module, "%.*s", (int)(module - skip), down + skip);
    WEFT_TRY(take_matrix(e, down, &pair->down));
    return take_matrix(e, up, &pair->up);
}

static weft_status write_adapter(const weft_export *e)
{
    char folder[600];
    const int32_t nodes = weft_graph_node_count(e->graph);
    const char *scope = e->models->denoiser.family->scope;
    const size_t own = strlen(scope);
    weft_graph *base = NULL;
    weft_adapter_pair *pair = weft_calloc(nodes + 1, sizeof *pair);
    int64_t pairs = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(pair, "the finished model"));
    snprintf(folder, sizeof folder, "%s/adapter", e->run->out);
    for (int32_t n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(e->graph, n);
        const char *name =
            node->op == WEFT_OP_PARAM ? weft_value_get(e->graph, node->out[0])->name : "";
        size_t module;
        if (!strncmp(name, scope, own) && name[own] == '.' && weft_param_is_lora(name, &module) &&
            !strncmp(name + module, ".lora_A", 7))
            WEFT_GO(take_pair(e, name, module, &pair[pairs++]));
    }
    WEFT_GO(weft_run_base(e->models, &base));
    const weft_adapter_file file = {.family = e->models->denoiser.family,
                                    .graph = base,
                                    .scope = scope,
                                    .format = e->run->transformer.lora.format,
                                    .dtype = dtype_of(e),
                                    .folder = folder,
                                    .settings = student_settings(e)};
    if (weft_comm_rank(e->comm) == 0)
        WEFT_GO(weft_adapter_write(&file, pair, pairs));
out:
    weft_adapter_pairs_free(pair, pairs);
    weft_graph_free(base);
    return status;
}

/* Writes a denoiser and its companion into folders of their own, as pipelines have them. */
static weft_status write_both(const weft_export *e, const weft_checkpoint_part *part,
                              const weft_companion *c, const char *pipeline)
{
    char prefix[200], without[100], path[700];
    json_t *own = json_copy(part->config);
    WEFT_TRY(WEFT_ALLOCATED(own, "the finished model"));
    json_t *config = json_incref(json_object_get(own, c->folder));
    weft_status_code status = WEFT_OK;
    json_object_del(own, c->folder);
    for (int i = 0; i < 2; i++) {
        const char *scope = i ? c->folder : part->scope;
        snprintf(path, sizeof path, "%s/%s", pipeline, scope);
        snprintf(without, sizeof without, "%.90s.", c->folder);
        snprintf(prefix, sizeof prefix, "%.90s.%s", part->scope, i ? without : "");
        if (weft_comm_rank(e->comm) == 0)
            WEFT_GO(weft_make_dirs(path));
        const weft_weights_change change = {.without = i ? NULL : without};
        WEFT_GO(weft_weights_save_changed(e->store, e->comm, e->graph, prefix, change, path,
                                          part->stem, dtype_of(e), (int64_t)4 << 30));
        if (weft_comm_rank(e->comm) == 0)
            WEFT_GO(save_json(path, "config.json", json_incref(i ? config : own)));
    }
out:
    json_decref(config);
    json_decref(own);
    return status;
}

/* Writes a part; a denoiser also has the embeddings of an empty text that it was trained with. */
static weft_status write_part(const weft_export *e, const weft_checkpoint_part *part,
                              const char *path)
{
    const weft_text_conditioning *text = &e->models->text;
    const bool denoises = weft_run_trains_denoiser(e->models) &&
                          !strcmp(part->scope, e->models->denoiser.family->scope);
    weft_tensors *file = NULL;
    const weft_stored_tensor *table = NULL;
    for (int r = 0; r < text->encoders && denoises && !file; r++)
        if (text->encoder[r].stores_no_text)
            WEFT_TRY(weft_no_text_open(text, r, e->run->transformer.weights, &file, &table));
    const weft_status_code status =
        weft_part_save(e->store, e->graph, e->comm, part, table, path, dtype_of(e));
    weft_tensors_close(file);
    return status;
}

weft_status weft_export_write(const weft_export *e)
{
    char folder[600], path[700];
    const bool is_lora = weft_run_trained_from(e->run, e->models)->lora.rank > 0;
    const weft_companion *both =
        weft_run_trains_denoiser(e->models) ? weft_model_companion(&e->models->denoiser) : NULL;
    if (is_lora)
        WEFT_TRY(write_adapter(e));
    snprintf(folder, sizeof folder, is_lora ? "%s" : "%s/model", e->run->out);
    /* text encoders are frozen with a LoRA; only an identity encoder remains */
    for (int i = is_lora; i < e->parts; i++) {
        if (e->part[i].internal)
            continue;
        if (both && !strcmp(e->part[i].scope, e->models->denoiser.family->scope)) {
            WEFT_TRY(write_both(e, &e->part[i], both, folder));
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, e->part[i].scope);
        WEFT_TRY(write_part(e, &e->part[i], path));
    }
    WEFT_TRY(write_identity_encoder(e, folder));
    if (is_lora || !weft_run_trains_denoiser(e->models) || weft_comm_rank(e->comm) != 0)
        return WEFT_OK;
    return write_rest(e, folder);
}

static void print_next(weft_buf *command)
{
    if (weft_buf_check(command) == WEFT_OK)
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(WEFT_DETAILS(WEFT_WORD("next", command->data))),
                    "next: %s", command->data);
    weft_buf_free(command);
}

/* Whether the pipeline of the finished model edits images. */
static bool edits(const weft_export *e)
{
    json_t *base = load_base(e, false);
    const bool found = edit_pipeline(e, pipeline_class(e, base)) != NULL;
    json_decref(base);
    return found;
}

/* Options of the inputs that a video of the trained model needs or shall have. */
static const char *inputs_of(const weft_export *e)
{
    const weft_frame_condition how = weft_model_takes_port(&e->models->denoiser);
    if (e->models->lead)
        return " --image FILE --control FILE --face FILE";
    if (e->run->condition == WEFT_CONDITION_CONTROL)
        return " --control FILE";
    return e->run->condition == WEFT_CONDITION_FIRST_FRAME || edits(e) ||
                   weft_visual_condition_needs_image(&how)
               ? " --image FILE"
               : "";
}

/* Options with which a video of an adapter has the sections of the training: weft.json of the
 * model that it adapts has others or none. */
static void print_sections(const weft_export *e, weft_buf *command)
{
    const weft_video_sections *s = &e->models->sections;
    if (!s->frames)
        return;
    weft_buf_printf(command, " --window %" PRId64, weft_history_inputs_window(e->models));
    if (!s->precedes)
        weft_buf_printf(command, " --sections %s", s->forward ? "forward" : "reverse");
}

/* Prints the command that generates a video with the trained model. */
static void print_generate(const weft_export *e, const char *model, const char *lora)
{
    const bool shows = weft_run_uses_identity(e->models);
    weft_buf command = {0};
    weft_buf_printf(&command, "weft generate --model %s%s%s%s", model, lora ? " --lora " : "",
                    lora ? lora : "", inputs_of(e));
    if (lora)
        print_sections(e, &command);
    if (shows && lora)
        weft_buf_printf(&command, " --identity-encoder %s/identity", e->run->out);
    weft_buf_printf(&command, "%s --prompt \"TEXT\" --out video.mp4",
                    shows ? " --identity-image FILE" : "");
    print_next(&command);
}

static void print_path(const char *what, const char *path)
{
    weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(WEFT_DETAILS(WEFT_WORD(what, path))), "the %s is %s",
                what, path);
}

void weft_export_print(const weft_export *e)
{
    const weft_run *run = e->run;
    char folder[600], adapter[600];
    if (weft_run_trained_from(run, e->models)->lora.rank > 0) {
        snprintf(adapter, sizeof adapter, "%s/adapter", run->out);
        snprintf(folder, sizeof folder, "%s/..", run->transformer.weights);
        const size_t length = strlen(run->transformer.weights);
        static const char name[] = "/transformer";
        if (length >= sizeof name &&
            !strcmp(run->transformer.weights + length - (sizeof name - 1), name))
            folder[length - (sizeof name - 1)] = '\0';
        print_path("adapter", adapter);
        print_generate(e, folder, adapter);
    } else if (weft_run_trains_denoiser(e->models)) {
        snprintf(folder, sizeof folder, "%s/model", run->out);
        print_path("model", folder);
        print_generate(e, folder, NULL);
    } else {
        weft_buf command = {0};
        const char *split, *shards = weft_run_data_first(&run->data, &split);
        snprintf(folder, sizeof folder, "%s/model/vae", run->out);
        print_path("autoencoder", folder);
        weft_buf_printf(&command,
                        "weft eval vae --model %s --shards %s --split \"%s\" --frames "
                        "%" PRId64 " --height %" PRId64 " --width %" PRId64,
                        folder, shards, split, e->size->frames, e->size->height, e->size->width);
        print_next(&command);
    }
}
