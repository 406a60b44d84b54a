#include "train/latents/latent_cache_folder.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/location.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "data/dataset.h"
#include "exec/store/weights.h"
#include "format/tensors/npy.h"
#include "format/tensors/tensors.h"
#include "generate/conditioning/clip_preprocess.h"
#include "prompt/conditioning_hash.h"
#include "storage/storage_json.h"
#include "train/checkpoint/run_places.h"
#include "train/config/run_model.h"
#include "train/graph/run_pair.h"
#include "train/latents/image_features.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define COMPLETE "complete"
/* Bytes up to which a cache is read completely when it is opened. */
static const int64_t check_limit = INT64_C(4) << 30;

/* train/graph/objective.c has already checked the text of the tiles. */
weft_tile weft_latent_tile(const weft_run *run)
{
    weft_tile tile = {0};
    return weft_tile_parse(run->autoencoder.tile, WEFT_MSG_CONFIG_VALUE, WEFT_NOWHERE, "", &tile) ==
                   WEFT_OK
               ? tile
               : (weft_tile){0};
}

/* ---- name ---------------------------------------------------------------------------------- */

static weft_status hash_weights(XXH3_state_t *state, const char *folder)
{
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(folder, false, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char path[1200];
        if (!weft_tensors_is_file(names.name[i]) &&
            strcmp(weft_path_extension(names.name[i]), "json"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, names.name[i]);
        WEFT_GO(weft_hash_file(state, path));
    }
out:
    weft_names_free(&names);
    return status;
}

static weft_status hash_connectors(XXH3_state_t *state, const weft_run_model *text,
                                   const weft_text_encoder *encoder)
{
    char folder[1024];
    weft_run_connectors_folder(text, folder, sizeof folder);
    return encoder->connectors.family ? hash_weights(state, folder) : WEFT_OK;
}

/* The prompt prefixes of the sources, which embeddings of captions depend on. */
static void put_prefixes(const weft_run_data *data, weft_buf *out)
{
    for (int64_t i = 0; i < data->sources.count; i++) {
        const weft_data_source *source = (const weft_data_source *)data->sources.item + i;
        char name[WEFT_SOURCE_NAME_BYTES];
        if (source->prompt_prefix[0])
            weft_buf_printf(out, "prefix of %s: %s|", weft_data_source_name(source, name),
                            source->prompt_prefix);
    }
}

static const char *const features_names[] = {"tokens", "patches", "embedding"};

/* The image encoder. Features of whole images also depend on the preprocessor_config.json of the
 * folder around it. */
static weft_status hash_image_encoder(XXH3_state_t *state, const weft_run_data *data)
{
    char path[1200];
    WEFT_TRY(hash_weights(state, data->image_encoder));
    for (int i = 0; i < WEFT_CLIP_PROCESSOR_FOLDERS; i++) {
        snprintf(path, sizeof path, "%s/../%s/preprocessor_config.json", data->image_encoder,
                 weft_clip_processor_folders[i]);
        if (data->image_features != WEFT_FEATURES_OF_FRAME && weft_path_exists(path))
            WEFT_TRY(weft_hash_file(state, path));
    }
    return WEFT_OK;
}

static weft_status hash_shards(const weft_run_data *data, uint64_t *hash)
{
    weft_dataset *dataset;
    WEFT_TRY(weft_run_data_open(data, &dataset));
    *hash = weft_dataset_fingerprint(dataset);
    weft_dataset_close(dataset);
    return WEFT_OK;
}

/* The folder's name: a hash of the encoders' files, their use by the denoiser, the shards' contents
 * and the clip sizes. Latents of other inputs are in other folders and are never read. */
static weft_status cache_key(const weft_run *run, const weft_run_models *models,
                             const weft_train_stage *s, char key[WEFT_HEX_BYTES])
{
    const weft_text_conditioning *c = &models->text;
    weft_buf what = {0};
    weft_run_data rest = run->data;
    uint64_t shards;
    WEFT_TRY(hash_shards(&run->data, &shards));
    weft_buf_printf(&what, "%s|%s|%.9g|", weft_hex_print(shards, key), run->data.split,
                    run->data.fps);
    if (rest.rest) {
        rest.path = rest.rest;
        WEFT_TRY(hash_shards(&rest, &shards));
        weft_buf_printf(&what, "then %s|", weft_hex_print(shards, key));
    }
    for (int i = 0; i < weft_train_stage_bucket_count(s); i++) {
        const weft_bucket *b = weft_train_stage_bucket(s, i);
        weft_buf_printf(&what, "%" PRId64 " %" PRId64 " %" PRId64 "|", b->frames, b->height,
                        b->width);
    }
    if (run->data.given_frames == 1)
        weft_buf_printf(&what, "first frame|");
    else if (run->data.given_frames)
        weft_buf_printf(&what, "first %" PRId64 " frames|", run->data.given_frames);
    if (run->data.image_encoder)
        weft_buf_printf(&what, "image %s%s|", features_names[run->data.image_features],
                        weft_image_features_unrounded(run, models) ? " unrounded" : "");
    if (models->text_precomputed)
        put_prefixes(&run->data, &what);
    if (run->precision == WEFT_PRECISION_TF32)
        weft_buf_printf(&what, "tf32|");
    const weft_tile tile = weft_latent_tile(run); /* latents of tiles differ */
    if (tile.on)
        weft_buf_printf(&what, "tiles %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "|",
                        tile.size[1], tile.size[2], tile.step[1], tile.step[2]);
    if (weft_run_has_sound(&models->sound))
        weft_buf_printf(&what, "sound|");
    if (models->grid.section) /* latents of sections that are videos of their own */
        weft_buf_printf(&what, "sections %" PRId64 "|", models->grid.section);
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&what));
    WEFT_GO(WEFT_ALLOCATED(state, "the latents"));
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, what.data, (size_t)what.len);
    WEFT_GO(hash_weights(state, run->autoencoder.weights));
    if (weft_run_has_sound(&models->sound))
        WEFT_GO(hash_weights(state, run->sound.autoencoder));
    if (run->data.image_encoder)
        WEFT_GO(hash_image_encoder(state, &run->data));
    for (int r = 0; models->text_precomputed && r < c->encoders; r++) {
        uint64_t text_hash;
        WEFT_GO(hash_weights(state, weft_run_text(run, r)->weights));
        WEFT_GO(hash_connectors(state, weft_run_text(run, r), &c->encoder[r]));
        WEFT_GO(weft_text_conditioning_hash(c, r, &text_hash));
        XXH3_64bits_update(state, &text_hash, sizeof text_hash);
    }
    weft_hex_print(XXH3_64bits_digest(state), key);
out:
    XXH3_freeState(state);
    weft_buf_free(&what);
    return status;
}

weft_status weft_latent_cache_folder(const weft_run *run, const weft_run_models *models,
                                     const weft_train_stage *train_stage, char folder[512])
{
    char key[WEFT_HEX_BYTES];
    WEFT_TRY(cache_key(run, models, train_stage, key));
    const int length = run->data.latents[0] ? snprintf(folder, 512, "%s/%s", run->data.latents, key)
                                            : snprintf(folder, 512, "%s/latents/%s", run->out, key);
    return length < 512
               ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = run->out), "the path is too long");
}

/* ---- files ---------------------------------------------------------------------------------- */

weft_status weft_latent_cache_has(const char *folder, const char *name, bool *has)
{
    weft_storage *storage;
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_open(folder, &storage));
    const weft_status_code status = weft_storage_facts_of(storage, name, &facts);
    weft_storage_close(storage);
    *has = status == WEFT_OK;
    if (status != WEFT_E_NOT_FOUND || weft_error_class() != WEFT_MSG_FILE_NOT_FOUND)
        return status;
    weft_error_clear();
    return WEFT_OK;
}

weft_status weft_latent_cache_put(const char *folder, const char *name, weft_buf *data)
{
    weft_storage *storage = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(data));
    WEFT_GO(weft_storage_open(folder, &storage));
    status = weft_storage_put(storage, name, data->data, data->len);
out:
    weft_storage_close(storage);
    weft_buf_free(data);
    return status;
}

weft_status weft_latent_cache_json(const char *folder, const char *name, json_t **json)
{
    weft_storage *storage;
    WEFT_TRY(weft_storage_open(folder, &storage));
    const weft_status_code status = weft_storage_json_load(storage, name, json);
    weft_storage_close(storage);
    return status;
}

static weft_status read_file(const char *folder, const char *name, char **data, int64_t *bytes)
{
    weft_storage *storage;
    weft_storage_facts facts;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_storage_open(folder, &storage));
    WEFT_GO(weft_storage_facts_of(storage, name, &facts));
    WEFT_GO(WEFT_NEW(*data, facts.bytes + 1, "%s", name));
    *bytes = facts.bytes;
    status = weft_storage_read(storage, name, 0, facts.bytes, *data);
out:
    weft_storage_close(storage);
    return status;
}

weft_status weft_latent_cache_array(const char *folder, const char *name, const char *source,
                                    int64_t count, float **values)
{
    weft_npy npy;
    char *data = NULL, *path = weft_path_join(folder, name);
    int64_t bytes = 0;
    weft_status_code status = WEFT_OK;
    *values = NULL;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", name));
    WEFT_GO(read_file(folder, name, &data, &bytes));
    WEFT_GO(weft_npy_parse(data, bytes, path, &npy));
    if (npy.dtype != WEFT_F32 || npy.count != count)
        WEFT_GO(weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, WEFT_NUMBER(npy.count)),
                           "the file does not have %" PRId64
                           " elements of type f32; remove %s, and it is written again",
                           count, source));
    WEFT_GO(WEFT_NEW(*values, count, "the latents"));
    memcpy(*values, npy.data, (size_t)count * sizeof **values);
out:
    weft_free(data);
    weft_free(path);
    return status;
}

/* ---- cached samples ------------------------------------------------------------------------ */

static uint64_t *find_slot(const weft_latent_ids *k, uint64_t id)
{
    uint64_t at = id & (uint64_t)(k->slots - 1);
    while (k->id[at] && k->id[at] != id)
        at = (at + 1) & (uint64_t)(k->slots - 1);
    return &k->id[at];
}

bool weft_latent_ids_have(const void *user, const weft_sample *sample)
{
    const weft_latent_ids *k = user;
    return k->slots && *find_slot(k, sample->id);
}

static weft_status reserve_known(weft_latent_ids *k, int64_t count)
{
    k->slots = 64;
    while (k->slots < 2 * count)
        k->slots *= 2;
    k->id = weft_alloc(k->slots * 8);
    return WEFT_ALLOCATED(k->id, "%" PRId64 " samples", count);
}

/* *whole is false for a shard that was truncated or changed. */
static weft_status check_shard(weft_storage *storage, const char *name, bool read, bool *whole)
{
    weft_arena *arena = weft_arena_create();
    weft_index_buffer buffer = {0};
    weft_index index;
    WEFT_TRY(WEFT_ALLOCATED(arena, "%s", name));
    weft_status_code status = weft_index_get(storage, name, arena, &buffer, &index, NULL);
    *whole = status == WEFT_OK && !index.damage;
    if (*whole && read && index.sum) {
        uint64_t sum = 0;
        status = weft_storage_sum(storage, name, &sum);
        *whole = status == WEFT_OK && sum == index.sum;
    }
    weft_arena_free(arena);
    weft_free(buffer.data);
    return status == WEFT_E_MEMORY ? status : WEFT_OK;
}

/* Removes a damaged shard and its index. */
static weft_status drop_shard(weft_storage *storage, const char *name, void *user)
{
    char index_name[300];
    (void)user;
    weft_warning(WEFT_MSG_LATENTS_REBUILT, WEFT_AT(.file = weft_storage_root(storage)),
                 "%s was truncated or changed after it was written; its samples are encoded again",
                 name);
    snprintf(index_name, sizeof index_name, "%s.index", name);
    WEFT_TRY(weft_storage_remove(storage, name));
    return weft_storage_remove(storage, index_name);
}

static weft_status record_damage(weft_storage *storage, const char *name, void *whole)
{
    (void)storage, (void)name;
    *(bool *)whole = false;
    return WEFT_OK;
}

/* Calls `damaged` for damaged shards. With `verify`, a folder of up to check_limit bytes is read
 * and compared with its checksums. In a larger folder and in a bucket, which is not read twice, the
 * loader verifies each sample member. */
static weft_status each_damaged(weft_storage *storage, bool verify,
                                weft_status (*damaged)(weft_storage *storage, const char *name,
                                                       void *user),
                                void *user)
{
    weft_names names = {0};
    int64_t total = 0;
    WEFT_TRY(weft_storage_list(storage, &names));
    weft_status_code status = WEFT_OK;
    verify = verify && !weft_location_is_remote(weft_storage_root(storage));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < names.count; i++) {
            weft_storage_facts facts;
            bool whole = true;
            if (strcmp(weft_path_extension(names.name[i]), "tar") != 0)
                continue;
            if (pass == 0) {
                if (weft_storage_facts_of(storage, names.name[i], &facts) == WEFT_OK)
                    total += facts.bytes;
                continue;
            }
            WEFT_GO(check_shard(storage, names.name[i], verify && total <= check_limit, &whole));
            if (!whole)
                WEFT_GO(damaged(storage, names.name[i], user));
        }
out:
    weft_names_free(&names);
    return status;
}

weft_status weft_latent_cache_read(const char *folder, weft_storage *storage, weft_latent_ids *k)
{
    weft_names names = {0};
    weft_dataset *ds = NULL;
    bool shards = false;
    WEFT_TRY(weft_storage_list(storage, &names));
    for (int64_t i = 0; i < names.count; i++)
        shards |= !strcmp(weft_path_extension(names.name[i]), "tar");
    weft_names_free(&names);
    if (!shards)
        return WEFT_OK;
    WEFT_TRY(weft_dataset_open(folder, NULL, false, &ds));
    k->count = weft_dataset_count(ds);
    weft_status_code status = WEFT_OK;
    WEFT_GO(reserve_known(k, k->count));
    for (int64_t i = 0; i < k->count; i++)
        *find_slot(k, weft_dataset_at(ds, i)->id) = weft_dataset_at(ds, i)->id;
out:
    weft_dataset_close(ds);
    return status;
}

/* ---- lock ----------------------------------------------------------------------------------- */

/* Rank 0 holds the lock while the run encodes. The run's other ranks wait for rank 0. */
static weft_status lock_folder(const weft_exec_config *exec, const char *folder, int *lock)
{
    char path[560];
    bool warned = false;
    const bool leads = weft_comm_rank(exec->comm) == 0;
    snprintf(path, sizeof path, "%s/lock", folder);
    for (;;) {
        double taken = 0;
        WEFT_TRY(weft_comm_interrupt_check(exec->comm));
        if (leads) {
            if (*lock < 0)
                *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
            if (*lock < 0)
                return weft_error_errno(WEFT_AT(.file = path), "cannot open the lock file");
            taken = flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        }
        WEFT_TRY(weft_comm_sum(exec->comm, &taken, 1));
        if (taken > 0)
            return WEFT_OK;
        if (leads && !warned)
            weft_notice(WEFT_MSG_DATA_REPORT, WEFT_NOWHERE,
                        "latents: waiting for another run that encodes into %s", folder);
        warned = true;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

weft_status weft_latent_cache_lock_open(const weft_run *run, const weft_exec_config *exec,
                                        const char *folder, weft_latent_cache_lock *lock)
{
    weft_owner_keeper *keeper = weft_run_places_keeper(run->places);
    if (!weft_location_is_remote(folder))
        return lock_folder(exec, folder, &lock->file);
    weft_status_code status = WEFT_OK;
    if (weft_comm_rank(exec->comm) == 0) {
        weft_comm_set_busy(exec->comm, "waiting for other runs that encode latents");
        status = keeper ? weft_bucket_owner_open_kept(folder, true, keeper, &lock->owner)
                        : weft_location_check_local(folder, "data.latents");
        weft_comm_set_busy(exec->comm, NULL);
    }
    WEFT_TRY(status);
    return weft_comm_barrier(exec->comm);
}

void weft_latent_cache_lock_close(weft_latent_cache_lock *lock)
{
    weft_bucket_owner_close(lock->owner);
    if (lock->file >= 0)
        close(lock->file);
}

weft_status weft_latent_cache_is_complete(const char *folder, const weft_latent_ids *k,
                                          bool *complete)
{
    json_t *json = NULL;
    WEFT_TRY(weft_latent_cache_has(folder, COMPLETE, complete));
    if (!*complete)
        return WEFT_OK;
    const weft_status_code status = weft_latent_cache_json(folder, COMPLETE, &json);
    if (status == WEFT_E_FORMAT)
        weft_error_clear();
    *complete =
        status == WEFT_OK && json_integer_value(json_object_get(json, "samples")) == k->count;
    json_decref(json);
    return status == WEFT_E_FORMAT ? WEFT_OK : status;
}

weft_status weft_latent_cache_repair(weft_storage *storage, bool verify)
{
    return each_damaged(storage, verify, drop_shard, NULL);
}

/* ---- a finished cache ----------------------------------------------------------------------- */

weft_status weft_latent_cache_inspect(const char *folder, bool verify, bool *finished,
                                      int64_t *samples)
{
    weft_storage *storage = NULL;
    weft_latent_ids ids = {0};
    bool whole = true, marked;
    *finished = false;
    *samples = 0;
    WEFT_TRY(weft_latent_cache_has(folder, COMPLETE, &marked));
    if (!marked)
        return WEFT_OK;
    WEFT_TRY(weft_storage_open(folder, &storage));
    weft_status_code status = WEFT_OK;
    WEFT_GO(each_damaged(storage, verify, record_damage, &whole));
    if (whole)
        WEFT_GO(weft_latent_cache_read(folder, storage, &ids));
    *samples = ids.count;
    if (whole)
        WEFT_GO(weft_latent_cache_is_complete(folder, &ids, finished));
out:
    weft_storage_close(storage);
    weft_free(ids.id);
    return status;
}

weft_status weft_latent_cache_check_writable(const char *folder, int64_t samples)
{
    char path[512];
    if (weft_location_is_remote(folder))
        return WEFT_OK;
    snprintf(path, sizeof path, "%s", folder);
    while (!weft_path_exists(path) && strrchr(path, '/') > path)
        *strrchr(path, '/') = 0;
    if (!weft_path_exists(path) || !faccessat(AT_FDCWD, path, W_OK, AT_EACCESS))
        return WEFT_OK;
    const int error = errno;
    if (strcmp(path, folder) != 0)
        return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = path, .key = "data.latents"),
                          "the folder has no latents of these clips and encoders (in %s), and "
                          "cannot be written: %s. Encode the clips where the folder can be "
                          "written, or set data.latents to another folder",
                          folder, strerror(error));
    return weft_error(
        WEFT_MSG_FILE_IO, WEFT_AT(.file = folder, .key = "data.latents", WEFT_NUMBER(samples)),
        "the latents are not complete (%" PRId64
        " samples are), and the folder cannot be written: %s. "
        "Complete them where it can be written, or set data.latents to another folder",
        samples, strerror(error));
}

static weft_status is_complete(const weft_run *run, const weft_run_models *models,
                               const weft_train_stage *train_stage, bool *complete)
{
    char folder[512];
    WEFT_TRY(weft_latent_cache_folder(run, models, train_stage, folder));
    return weft_latent_cache_has(folder, COMPLETE, complete);
}

/* A cache that is not complete can be written. *complete does not change. */
static weft_status check_missing(const weft_run *run, const weft_run_models *models,
                                 const weft_train_stage *train_stage, bool *complete)
{
    char folder[512];
    bool finished;
    int64_t samples;
    (void)complete;
    WEFT_TRY(weft_latent_cache_folder(run, models, train_stage, folder));
    WEFT_TRY(weft_latent_cache_inspect(folder, false, &finished, &samples));
    return finished ? WEFT_OK : weft_latent_cache_check_writable(folder, samples);
}

/* Calls `check` for the caches of the further data sets, while *complete is true. */
static weft_status
check_pairs(const weft_run *run, const weft_run_models *models, const weft_train_stage *train_stage,
            weft_status (*check)(const weft_run *run, const weft_run_models *models,
                                 const weft_train_stage *train_stage, bool *complete),
            bool *complete)
{
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(run, models, pair);
    for (int i = 0; i < pairs && *complete; i++) {
        weft_train_stage own;
        if (!weft_run_pair_cached(&pair[i]))
            continue;
        const weft_run second = weft_run_pair_run(run, &pair[i]);
        const weft_run_models second_models = weft_run_pair_models(models, &pair[i]);
        WEFT_TRY(weft_run_pair_stage(run, &pair[i], train_stage, &own));
        const weft_status_code status = check(&second, &second_models, &own, complete);
        weft_run_pair_stage_free(&pair[i], &own);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* The folder of all caches. Returns false if the run has none, or the path is too long. */
static bool find_root(const weft_run *run, const weft_run_models *models, char root[512])
{
    const int length = run->data.latents[0] ? snprintf(root, 512, "%s", run->data.latents)
                                            : snprintf(root, 512, "%s/latents", run->out);
    return weft_run_trains_denoiser(models) && run->data.samples_from != WEFT_FROM_PIXELS &&
           length < 512;
}

weft_status weft_latents_encoded(const weft_run *run, const weft_run_models *models, bool *encoded)
{
    char root[512];
    for (int64_t i = 0; i < run->train_stages.count; i++)
        encoded[i] = false;
    if (!find_root(run, models, root) || !(weft_location_is_remote(root) || weft_path_is_dir(root)))
        return WEFT_OK;
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + i;
        WEFT_TRY(is_complete(run, models, train_stage, &encoded[i]));
        if (encoded[i])
            WEFT_TRY(check_pairs(run, models, train_stage, is_complete, &encoded[i]));
    }
    return WEFT_OK;
}

weft_status weft_latents_check_writable(const weft_run *run, const weft_run_models *models,
                                        const bool *encoded)
{
    char root[512];
    if (!find_root(run, models, root) || weft_latent_cache_check_writable(root, 0) == WEFT_OK)
        return WEFT_OK;
    weft_error_clear(); /* a cache in the folder may be writable, or not be needed */
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + i;
        bool all = true;
        if (encoded[i])
            continue;
        weft_status_code status = check_missing(run, models, train_stage, &all);
        if (status == WEFT_OK)
            status = check_pairs(run, models, train_stage, check_missing, &all);
        if (status != WEFT_OK)
            return weft_error_add(status, "Stage %" PRId64 " of the run needs the latents", i);
    }
    return WEFT_OK;
}
