#include "generate/walk_file.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/hash.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const metadata = "weft.kept";

static json_t *head_of(const weft_walk_file *k)
{
    return json_pack("{s:i, s:O, s:O, s:{s:I, s:I, s:I, s:I}, s:f, s:f, s:I}", "version", 1,
                     "settings", k->settings, "prompts", k->prompts, "place", "step",
                     (json_int_t)k->place.step, "steps", (json_int_t)k->steps, "draws",
                     (json_int_t)k->place.draws, "order", (json_int_t)k->place.order, "scale",
                     k->scale, "fps", k->fps, "tried", (json_int_t)k->tried);
}

static weft_status write_tensors(weft_tensors_writer *w, const weft_walk_file *k, const char *head)
{
    const int64_t dim[6] = {k->histories, k->videos,    k->latent[0],
                            k->latent[1], k->latent[2], k->latent[3]};
    weft_tensors_writer_hasten(w);
    WEFT_TRY(weft_tensors_writer_metadata(w, metadata, head));
    WEFT_TRY(weft_tensors_writer_declare(w, "x", WEFT_F32, 5, dim + 1));
    if (k->histories)
        WEFT_TRY(weft_tensors_writer_declare(w, "history", WEFT_F32, 6, dim));
    WEFT_TRY(weft_tensors_writer_data(w, "x", WEFT_F32, k->x));
    if (k->histories)
        WEFT_TRY(weft_tensors_writer_data(w, "history", WEFT_F32, k->history));
    return weft_tensors_writer_finish(w);
}

weft_status weft_walk_file_writer(const char *path, weft_tensors_writer **writer)
{
    static const char extension[] = ".safetensors";
    const char *base = weft_path_base(path);
    const int64_t folder = base - path, stem = (int64_t)(strlen(base) - strlen(extension));
    weft_buf dir = {0}, name = {0};
    weft_buf_printf(&dir, "%.*s", folder > 1 ? (int)folder - 1 : 1, folder ? path : ".");
    weft_buf_printf(&name, "%.*s", (int)stem, base);
    weft_status_code status = weft_buf_check(&dir);
    if (status == WEFT_OK)
        status = weft_buf_check(&name);
    if (status == WEFT_OK)
        status = weft_tensors_writer_create(dir.data, name.data, 0, writer);
    weft_buf_free(&dir);
    weft_buf_free(&name);
    return status;
}

weft_status weft_walk_file_write(const char *path, const weft_walk_file *k)
{
    weft_tensors_writer *w = NULL;
    json_t *head = head_of(k);
    char *text = head ? weft_json_line(head) : NULL;
    weft_status_code status = WEFT_OK;
    if (!text)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for %s", path));
    WEFT_GO(weft_walk_file_writer(path, &w));
    WEFT_GO(write_tensors(w, k, text));
out:
    weft_tensors_writer_free(w);
    weft_free(text);
    json_decref(head);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static weft_status parse_head(const char *path, const char *text, weft_walk_file *k)
{
    json_t *head = NULL;
    int64_t version;
    WEFT_TRY(weft_json_parse(text, (int64_t)strlen(text), path, &head));
    const json_t *place = json_object_get(head, "place");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_get_i64(head, "version", path, &version));
    if (version != 1)
        WEFT_GO(weft_fail(WEFT_E_FORMAT, "%s: version %lld of kept latents; this weft reads 1",
                          path, (long long)version));
    WEFT_GO(weft_json_get_i64(place, "step", path, &k->place.step));
    WEFT_GO(weft_json_get_i64(place, "steps", path, &k->steps));
    WEFT_GO(weft_json_get_i64(place, "draws", path, &k->place.draws));
    WEFT_GO(weft_json_get_i64(place, "order", path, &k->place.order));
    WEFT_GO(weft_json_get_f64(head, "scale", path, &k->scale));
    WEFT_GO(weft_json_get_f64(head, "fps", path, &k->fps));
    WEFT_GO(weft_json_get_i64(head, "tried", path, &k->tried));
    k->settings = json_incref(json_object_get(head, "settings"));
    k->prompts = json_incref(json_object_get(head, "prompts"));
    if (!json_is_object(k->settings) || !json_is_array(k->prompts))
        status = weft_fail(WEFT_E_FORMAT, "%s: its settings or prompts are missing", path);
out:
    json_decref(head);
    return status;
}

static weft_status take_tensors(const char *path, weft_walk_file *k)
{
    const weft_stored_tensor *x = weft_tensors_find(k->file, "x"),
                             *history = weft_tensors_find(k->file, "history");
    if (!x || x->rank != 5 || x->dtype != WEFT_F32 ||
        x->dim[0] != (int64_t)json_array_size(k->prompts))
        return weft_fail(WEFT_E_FORMAT, "%s: \"x\" is not f32 (videos, latents)", path);
    k->videos = x->dim[0];
    memcpy(k->latent, x->dim + 1, sizeof k->latent);
    if (history && (history->rank != 6 || history->dtype != WEFT_F32 ||
                    memcmp(history->dim + 1, x->dim, 5 * sizeof *x->dim) != 0))
        return weft_fail(WEFT_E_FORMAT, "%s: \"history\" is not f32 (arrays, videos, latents)",
                         path);
    k->histories = history ? history->dim[0] : 0;
    k->x = x->data;
    k->history = history ? history->data : NULL;
    return WEFT_OK;
}

weft_status weft_walk_file_whole(const char *path, bool *whole)
{
    weft_tensors *file = NULL;
    weft_status_code status = weft_tensors_open(path, &file);
    if (status == WEFT_OK)
        status = weft_tensors_verify(file);
    weft_tensors_close(file);
    *whole = status == WEFT_OK;
    return status == WEFT_E_FORMAT ? WEFT_OK : status;
}

weft_status weft_walk_file_open(const char *path, weft_walk_file *k)
{
    *k = (weft_walk_file){0};
    weft_status_code status = weft_tensors_open(path, &k->file);
    if (status == WEFT_E_FORMAT)
        return weft_fail(status,
                         "%s; kept latents are in .latents.safetensors and "
                         ".walk.safetensors of weft generate",
                         weft_error_message());
    if (status != WEFT_OK)
        return status;
    const char *head = weft_tensors_metadata(k->file, metadata);
    if (!head)
        status = weft_fail(WEFT_E_FORMAT,
                           "%s: no kept latents: weft generate leaves them where it is stopped, or "
                           "with --keep-latents, as .latents.safetensors and .walk.safetensors",
                           path);
    if (status == WEFT_OK)
        status = weft_tensors_verify(k->file);
    if (status == WEFT_OK)
        status = parse_head(path, head, k);
    if (status == WEFT_OK)
        status = take_tensors(path, k);
    if (status != WEFT_OK)
        weft_walk_file_close(k);
    return status;
}

weft_status weft_walk_file_damaged(weft_status_code opened)
{
    return opened == WEFT_E_FORMAT
               ? weft_fail(opened, "%s; remove it to begin anew", weft_error_message())
               : opened;
}

void weft_walk_file_close(weft_walk_file *k)
{
    json_decref(k->settings);
    json_decref(k->prompts);
    weft_tensors_close(k->file);
    *k = (weft_walk_file){0};
}

/* ---- comparing ------------------------------------------------------------------------------ */

static weft_status tell_difference(const char *path, const char *key, const json_t *kept,
                                   const json_t *now)
{
    char *was = kept ? json_dumps(kept, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    char *is = now ? json_dumps(now, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    const bool folder = !strcmp(key, "model") || !strcmp(key, "vae");
    const weft_status_code status =
        folder ? weft_fail(WEFT_E_ARG,
                           "%s: it was made with another %s than this model folder has (%s, here "
                           "%s); give the folder that it was made with as --model",
                           path, strcmp(key, "vae") ? "model" : "VAE", was ? was : "none",
                           is ? is : "none")
               : weft_fail(WEFT_E_ARG,
                           "%s: it was made with %s %s, and this command says %s; give the "
                           "options that it was made with, or remove the file to begin anew",
                           path, key, was ? was : "unset", is ? is : "unset");
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

weft_status weft_walk_file_compare(const char *path, const json_t *kept, const json_t *now,
                                   const char *const *except)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *was = json_object_get(kept, key);
        if (!is_among(except, key) && !json_equal(was, value))
            return tell_difference(path, key, was, value);
    }
    json_object_foreach((json_t *)(uintptr_t)kept, key, value)
    {
        if (!is_among(except, key) && !json_object_get(now, key))
            return tell_difference(path, key, value, NULL);
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

static const char *write_hex(const XXH3_state_t *state, char hex[17])
{
    snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    return hex;
}

weft_status weft_folder_identity(const char *folder, char hex[17])
{
    static const char *const kinds[] = {"json", "safetensors", "gguf", "pt", "pth", "bin", "model"};
    weft_names names = {0};
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    weft_status_code status = weft_list_dir(folder, false, &names);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        bool counts = false;
        for (int k = 0; k < WEFT_COUNT(kinds); k++)
            counts |= !strcmp(weft_path_extension(names.name[i]), kinds[k]);
        char *path = counts ? weft_path_join(folder, names.name[i]) : NULL;
        if (counts && !path)
            status = weft_fail(WEFT_E_MEMORY, "out of memory for a path");
        else if (counts)
            status = add_file(&state, path);
        weft_free(path);
    }
    weft_names_free(&names);
    write_hex(&state, hex);
    return status;
}

weft_status weft_model_identity(const char *folder, char model[17], char vae[17])
{
    weft_names names = {0};
    XXH3_state_t state;
    char hex[17];
    XXH3_64bits_reset(&state);
    weft_status_code status = weft_list_dir(folder, false, &names);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        char *path = weft_path_join(folder, names.name[i]);
        const bool is_vae = !strcmp(names.name[i], "vae");
        if (!path)
            status = weft_fail(WEFT_E_MEMORY, "out of memory for a path");
        else if (weft_path_is_dir(path))
            status = weft_folder_identity(path, is_vae ? vae : hex);
        if (path && status == WEFT_OK && !is_vae && weft_path_is_dir(path)) {
            XXH3_64bits_update(&state, names.name[i], strlen(names.name[i]));
            XXH3_64bits_update(&state, hex, 16);
        }
        weft_free(path);
    }
    weft_names_free(&names);
    write_hex(&state, model);
    return status;
}

weft_status weft_file_identity(const char *path, char hex[17])
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_hash_file(&state, path));
    write_hex(&state, hex);
    return WEFT_OK;
}
