#include "generate/generator/saved_latents.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/hash.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/safetensors_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const metadata = "weft.saved_latents", *const earlier_metadata = "weft.kept";

static json_t *head_of(const weft_saved_latents *k)
{
    json_t *head = json_pack("{s:i, s:O, s:O, s:{s:I, s:I, s:I, s:I}, s:f, s:f, s:I}", "version", 1,
                             "settings", k->settings, "prompts", k->prompts, "place", "step",
                             (json_int_t)k->cursor.step, "steps", (json_int_t)k->steps, "draws",
                             (json_int_t)k->cursor.draws, "order", (json_int_t)k->cursor.order,
                             "scale", k->scale, "fps", k->fps, "tried", (json_int_t)k->tried);
    const int64_t *d = k->latent;
    if (head && k->sound[0]) /* x has no dims of its own */
        json_object_update_new(head, json_pack("{s:[I,I,I,I], s:[I,I]}", "latents",
                                               (json_int_t)d[0], (json_int_t)d[1], (json_int_t)d[2],
                                               (json_int_t)d[3], "sound", (json_int_t)k->sound[0],
                                               (json_int_t)k->sound[1]));
    return head;
}

int64_t weft_saved_latents_floats(const weft_saved_latents *k)
{
    return k->latent[0] * k->latent[1] * k->latent[2] * k->latent[3] + k->sound[0] * k->sound[1];
}

static weft_status write_tensors(weft_tensors_writer *w, const weft_saved_latents *k,
                                 const char *head)
{
    const bool sound = k->sound[0] > 0;
    const int64_t dim[6] = {
        k->histories, k->videos,    sound ? weft_saved_latents_floats(k) : k->latent[0],
        k->latent[1], k->latent[2], k->latent[3]};
    weft_tensors_writer_hasten(w);
    WEFT_TRY(weft_tensors_writer_metadata(w, metadata, head));
    WEFT_TRY(weft_tensors_writer_declare(w, "x", WEFT_F32, sound ? 2 : 5, dim + 1));
    if (k->histories)
        WEFT_TRY(weft_tensors_writer_declare(w, "history", WEFT_F32, sound ? 3 : 6, dim));
    WEFT_TRY(weft_tensors_writer_data(w, "x", WEFT_F32, k->x));
    if (k->histories)
        WEFT_TRY(weft_tensors_writer_data(w, "history", WEFT_F32, k->history));
    return weft_tensors_writer_finish(w);
}

weft_status weft_saved_latents_writer(const char *path, weft_tensors_writer **writer)
{
    static const char extension[] = ".safetensors";
    const char *base = weft_path_base(path);
    const int64_t folder = base - path, stem = (int64_t)(strlen(base) - strlen(extension));
    weft_buf dir = {0}, name = {0};
    weft_buf_printf(&dir, "%.*s", folder > 1 ? (int)folder - 1 : 1, folder ? path : ".");
    weft_buf_printf(&name, "%.*s", (int)stem, base);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&dir));
    WEFT_GO(weft_buf_check(&name));
    WEFT_GO(weft_tensors_writer_create(dir.data, name.data, 0, writer));
out:
    weft_buf_free(&dir);
    weft_buf_free(&name);
    return status;
}

weft_status weft_saved_latents_write(const char *path, const weft_saved_latents *k)
{
    weft_tensors_writer *w = NULL;
    json_t *head = head_of(k);
    char *text = head ? weft_json_line(head) : NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(text, "%s", path));
    WEFT_GO(weft_saved_latents_writer(path, &w));
    WEFT_GO(write_tensors(w, k, text));
out:
    weft_tensors_writer_free(w);
    weft_free(text);
    json_decref(head);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Reads the sizes of a video and its sound, if the file has sound. Sizes from 1 to MOST keep their
 * product below 2^63. */
static weft_status parse_sizes(const char *path, const json_t *head, weft_saved_latents *k)
{
    enum { MOST = 1 << 15 };
    const json_t *latents = json_object_get(head, "latents"),
                 *sound = json_object_get(head, "sound");
    for (size_t i = 0; i < 4 && sound; i++)
        k->latent[i] = json_integer_value(json_array_get(latents, i));
    for (size_t i = 0; i < 2 && sound; i++)
        k->sound[i] = json_integer_value(json_array_get(sound, i));
    const int64_t size[] = {k->latent[0], k->latent[1], k->latent[2],
                            k->latent[3], k->sound[0],  k->sound[1]};
    for (int i = 0; i < WEFT_COUNT(size) && sound; i++)
        if (size[i] < 1 || size[i] > MOST)
            return weft_error(
                WEFT_MSG_LATENTS_INVALID,
                WEFT_AT(.file = path, .key = i < 4 ? "latents" : "sound", WEFT_NUMBER(size[i])),
                "the size %" PRId64 " is not from 1 to %d", size[i], MOST);
    return WEFT_OK;
}

static weft_status parse_head(const char *path, const char *text, weft_saved_latents *k)
{
    json_t *head = NULL;
    int64_t version;
    WEFT_TRY(weft_json_parse(text, (int64_t)strlen(text), path, &head));
    const json_t *cursor = json_object_get(head, "place");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_get_i64(head, "version", path, &version));
    if (version != 1)
        WEFT_GO(weft_error(
            WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, .key = "version", WEFT_NUMBER(version)),
            "version %" PRId64 " of kept latents is not supported; this weft reads 1", version));
    WEFT_GO(weft_json_get_i64(cursor, "step", path, &k->cursor.step));
    WEFT_GO(weft_json_get_i64(cursor, "steps", path, &k->steps));
    WEFT_GO(weft_json_get_i64(cursor, "draws", path, &k->cursor.draws));
    WEFT_GO(weft_json_get_i64(cursor, "order", path, &k->cursor.order));
    WEFT_GO(weft_json_get_f64(head, "scale", path, &k->scale));
    WEFT_GO(weft_json_get_f64(head, "fps", path, &k->fps));
    WEFT_GO(weft_json_get_i64(head, "tried", path, &k->tried));
    WEFT_GO(parse_sizes(path, head, k));
    k->settings = json_incref(json_object_get(head, "settings"));
    k->prompts = json_incref(json_object_get(head, "prompts"));
    if (!json_is_object(k->settings) || !json_is_array(k->prompts))
        status = weft_error(
            WEFT_MSG_LATENTS_INVALID,
            WEFT_AT(.file = path, .key = json_is_object(k->settings) ? "prompts" : "settings"),
            "the settings or prompts of the latents are missing");
out:
    json_decref(head);
    return status;
}

static weft_status take_tensors(const char *path, weft_saved_latents *k)
{
    const weft_stored_tensor *x = weft_tensors_find(k->file, "x"),
                             *history = weft_tensors_find(k->file, "history");
    const int rank = k->sound[0] ? 2 : 5;
    if (!x || x->rank != rank || x->dtype != WEFT_F32 ||
        x->dim[0] != (int64_t)json_array_size(k->prompts) ||
        (k->sound[0] && x->dim[1] != weft_saved_latents_floats(k)))
        return weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, .key = "x"),
                          "the tensor is not f32 of (videos, latents)");
    k->videos = x->dim[0];
    if (!k->sound[0])
        memcpy(k->latent, x->dim + 1, sizeof k->latent);
    if (history && (history->rank != rank + 1 || history->dtype != WEFT_F32 ||
                    memcmp(history->dim + 1, x->dim, (size_t)rank * sizeof *x->dim) != 0))
        return weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, .key = "history"),
                          "the tensor is not f32 of (arrays, videos, latents)");
    k->histories = history ? history->dim[0] : 0;
    k->x = x->data;
    k->history = history ? history->data : NULL;
    return WEFT_OK;
}

weft_status weft_saved_latents_verify(const char *path, bool *whole)
{
    weft_tensors *file = NULL;
    weft_status_code status = WEFT_OK;
    *whole = false;
    WEFT_GO(weft_tensors_open(path, &file));
    WEFT_GO(weft_tensors_verify(file));
    *whole = true;
out:
    weft_tensors_close(file);
    return status == WEFT_E_FORMAT ? WEFT_OK : status;
}

/* Reads the opened file. */
static weft_status read_file(const char *path, weft_saved_latents *k)
{
    const char *head = weft_tensors_metadata(k->file, metadata);
    if (!head)
        head = weft_tensors_metadata(k->file, earlier_metadata);
    if (!head)
        return weft_error(
            WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path),
            "the file has no kept latents. `weft generate` writes them when it is stopped, or with "
            "--save-latents, as .latents.safetensors and .sampling.safetensors.");
    WEFT_TRY(weft_tensors_verify(k->file));
    WEFT_TRY(parse_head(path, head, k));
    return take_tensors(path, k);
}

weft_status weft_saved_latents_open(const char *path, weft_saved_latents *k)
{
    *k = (weft_saved_latents){0};
    weft_status_code status = weft_tensors_open(path, &k->file);
    if (status == WEFT_E_FORMAT)
        return weft_error_add(status, "Kept latents are files .latents.safetensors and "
                                      ".sampling.safetensors of `weft generate`.");
    WEFT_TRY(status);
    status = read_file(path, k);
    if (status != WEFT_OK)
        weft_saved_latents_close(k);
    return status;
}

weft_status weft_saved_latents_damaged(weft_status_code opened)
{
    return opened == WEFT_E_FORMAT ? weft_error_add(opened, "Remove it to start from scratch.")
                                   : opened;
}

void weft_saved_latents_close(weft_saved_latents *k)
{
    json_decref(k->settings);
    json_decref(k->prompts);
    weft_tensors_close(k->file);
    *k = (weft_saved_latents){0};
}

/* ---- comparing ------------------------------------------------------------------------------ */

static weft_status difference_error(const char *path, const char *key, const json_t *saved,
                                    const json_t *now)
{
    char *was = saved ? json_dumps(saved, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    char *is = now ? json_dumps(now, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    const char *value = json_is_string(now) ? json_string_value(now) : is;
    const bool folder = !strcmp(key, "model") || !strcmp(key, "vae");
    const weft_status_code status =
        folder
            ? weft_error(WEFT_MSG_LATENTS_MISMATCH,
                         WEFT_AT(.file = path, .key = key, .value = value),
                         "the latents were written with the %s %s; this model folder has %s. Give "
                         "the folder that wrote them as --model.",
                         strcmp(key, "vae") ? "model" : "VAE", was ? was : "none", is ? is : "none")
            : weft_error(WEFT_MSG_LATENTS_MISMATCH,
                         WEFT_AT(.file = path, .key = key, .value = value),
                         "the latents were written with %s, and this command has %s. Use the "
                         "options that wrote them, or remove the file to start from scratch.",
                         was ? was : "unset", is ? is : "unset");
    free(was);
    free(is);
    return status;
}

static bool is_among(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

weft_status weft_saved_latents_compare(const char *path, const json_t *saved, const json_t *now,
                                       const char *const *except)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *was = json_object_get(saved, key);
        if (!is_among(except, key) && !json_equal(was, value))
            return difference_error(path, key, was, value);
    }
    json_object_foreach((json_t *)(uintptr_t)saved, key, value)
    {
        if (!is_among(except, key) && !json_object_get(now, key))
            return difference_error(path, key, value, NULL);
    }
    return WEFT_OK;
}

/* ---- identities ----------------------------------------------------------------------------- */

enum { WHOLE = 1 << 20, SAMPLE = 1 << 14, SAMPLES = 32 };

static weft_status add_file(XXH3_state_t *state, const char *path)
{
    weft_map map;
    WEFT_TRY(weft_map_open(path, &map));
    XXH3_64bits_update(state, &map.bytes, sizeof map.bytes);
    if (map.bytes <= WHOLE) {
        XXH3_64bits_update(state, map.data, (size_t)map.bytes);
    } else {
        XXH3_64bits_update(state, map.data, WHOLE / 4);
        for (int64_t i = 1; i <= SAMPLES; i++)
            XXH3_64bits_update(state, map.data + (map.bytes - SAMPLE) / SAMPLES * i, SAMPLE);
    }
    weft_map_close(&map);
    return WEFT_OK;
}

static weft_status add_file_in(XXH3_state_t *state, const char *folder, const char *name)
{
    char *path = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    const weft_status_code status = add_file(state, path);
    weft_free(path);
    return status;
}

/* Adds the files of a folder, and of its subfolders down to `depth`: a denoiser's folder may have
 * the folder of its companion. */
static weft_status add_files_of(XXH3_state_t *state, const char *folder, int depth)
{
    static const char *const kinds[] = {"json", "safetensors", "gguf", "pt", "pth", "bin", "model"};
    weft_names names = {0};
    char *child = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(folder, false, &names));
    for (int64_t i = 0; i < names.count; i++) {
        bool counts = false;
        for (int k = 0; k < WEFT_COUNT(kinds); k++)
            counts |= !strcmp(weft_path_extension(names.name[i]), kinds[k]);
        weft_free(child);
        child = weft_path_join(folder, names.name[i]);
        WEFT_GO(WEFT_ALLOCATED(child, "a path"));
        if (depth > 0 && weft_path_is_dir(child)) {
            XXH3_64bits_update(state, names.name[i], strlen(names.name[i]));
            WEFT_GO(add_files_of(state, child, depth - 1));
        } else if (counts) {
            WEFT_GO(add_file_in(state, folder, names.name[i]));
        }
    }
out:
    weft_free(child);
    weft_names_free(&names);
    return status;
}

weft_status weft_folder_identity(const char *folder, char hex[WEFT_HEX_BYTES])
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(add_files_of(&state, folder, 1));
    weft_hex_print(XXH3_64bits_digest(&state), hex);
    return WEFT_OK;
}

/* Adds the name and identity of a subfolder, or sets `vae` to the identity of the autoencoder. */
static weft_status add_subfolder(XXH3_state_t *state, const char *folder, const char *name,
                                 char vae[WEFT_HEX_BYTES])
{
    char hex[WEFT_HEX_BYTES], *path = weft_path_join(folder, name);
    const bool is_vae = !strcmp(name, "vae");
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    if (weft_path_is_dir(path)) {
        WEFT_GO(weft_folder_identity(path, is_vae ? vae : hex));
        if (!is_vae) {
            XXH3_64bits_update(state, name, strlen(name));
            XXH3_64bits_update(state, hex, 16);
        }
    }
out:
    weft_free(path);
    return status;
}

weft_status weft_model_identity(const char *folder, char model[WEFT_HEX_BYTES],
                                char vae[WEFT_HEX_BYTES])
{
    weft_names names = {0};
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(folder, false, &names));
    for (int64_t i = 0; i < names.count; i++)
        WEFT_GO(add_subfolder(&state, folder, names.name[i], vae));
    weft_hex_print(XXH3_64bits_digest(&state), model);
out:
    weft_names_free(&names);
    return status;
}

weft_status weft_file_identity(const char *path, char hex[WEFT_HEX_BYTES])
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_hash_file(&state, path));
    weft_hex_print(XXH3_64bits_digest(&state), hex);
    return WEFT_OK;
}
