#include "base/fs.h"
#include "base/hash.h"
#include "format/safetensors.h"
#include "generate/generator_parts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- settings ------------------------------------------------------------------------------- */

static weft_status add(json_t *to, const char *key, json_t *value)
{
    return json_object_set_new(to, key, value)
               ? weft_fail(WEFT_E_MEMORY, "out of memory for the settings of a run")
               : WEFT_OK;
}

static weft_status add_numbers(const weft_generator *p, json_t *to)
{
    const weft_generator_options *o = &p->options;
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {{"frames", o->frames},
                 {"height", o->height},
                 {"width", o->width},
                 {"steps", o->steps},
                 {"batch", o->batch},
                 {"window", p->windows.count > 1 ? o->window : 0},
                 {"window_overlap", p->windows.count > 1 ? o->window_overlap : 0},
                 {"weights", o->weights}};
    const struct {
        const char *key;
        double value;
    } real[] = {{"guidance", o->guidance},
                {"guidance_low", o->guidance_low},
                {"guidance_rescale", o->guidance_rescale},
                {"boundary", o->boundary},
                {"shift", o->shift},
                {"eta", o->eta},
                {"strength", o->strength},
                {"guided_from", o->guided[0]},
                {"guided_to", o->guided[1]},
                {"fps", o->fps}};
    for (int i = 0; i < WEFT_COUNT(whole); i++)
        WEFT_TRY(add(to, whole[i].key, json_integer(whole[i].value)));
    for (int i = 0; i < WEFT_COUNT(real); i++)
        WEFT_TRY(add(to, real[i].key, json_real(real[i].value)));
    if (p->lead)
        WEFT_TRY(add(to, "lead", json_integer(p->lead)));
    WEFT_TRY(add(to, "cache", json_string(p->cached ? o->cache : "off")));
    WEFT_TRY(add(to, "sampler", json_string(o->sampler->name)));
    return add(to, "guide", json_string(p->guidance->name));
}

static weft_status add_model(const weft_generator *p, json_t *to)
{
    char model[17], vae[17];
    WEFT_TRY(weft_model_identity(p->folder, model, vae));
    WEFT_TRY(add(to, "model", json_string(model)));
    return add(to, "vae", json_string(vae));
}

/* Pictures, videos, masks, adapters: by what is in them. */
static weft_status add_files(const weft_generator *p, json_t *to)
{
    const weft_given_files *g = &p->options.given;
    const struct {
        const char *key, *path;
    } file[] = {{"image", g->image},
                {"last_image", g->last_image},
                {"video", g->video},
                {"mask", g->mask},
                {"identity", p->options.likeness.picture}};
    char hex[17];
    for (int i = 0; i < WEFT_COUNT(file); i++)
        if (file[i].path) {
            WEFT_TRY(weft_file_identity(file[i].path, hex));
            WEFT_TRY(add(to, file[i].key, json_string(hex)));
        }
    if (p->options.likeness.picture) {
        WEFT_TRY(weft_folder_identity(p->likeness.folder, hex));
        WEFT_TRY(add(to, "identity_module", json_string(hex)));
        WEFT_TRY(add(to, "identity_scale", json_real(p->options.likeness.scale)));
    }
    if (g->video || g->image || p->options.likeness.picture)
        WEFT_TRY(add(to, "fit", json_integer(g->fit)));
    if (g->outpaint[0] || g->outpaint[1] || g->outpaint[2] || g->outpaint[3])
        WEFT_TRY(add(to, "outpaint",
                     json_pack("[I,I,I,I]", (json_int_t)g->outpaint[0], (json_int_t)g->outpaint[1],
                               (json_int_t)g->outpaint[2], (json_int_t)g->outpaint[3])));
    for (int i = 0; i < p->options.adapter_count; i++) {
        const weft_adapter_choice *a = &p->options.adapters[i];
        weft_buf key = {0};
        weft_buf_printf(&key, "lora.%d", i);
        weft_status_code status = weft_buf_check(&key);
        if (status == WEFT_OK)
            status = weft_path_is_dir(a->path) ? weft_folder_identity(a->path, hex)
                                               : weft_file_identity(a->path, hex);
        if (status == WEFT_OK)
            status = add(to, key.data, json_pack("[s,f,i]", hex, a->weight, a->expert));
        weft_buf_free(&key);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* Read once: files are looked into. */
static weft_status identify(weft_generator *p)
{
    if (p->identity)
        return WEFT_OK;
    json_t *all = json_object();
    weft_status_code status = all ? add_model(p, all) : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK)
        status = add_numbers(p, all);
    if (status == WEFT_OK)
        status = add_files(p, all);
    if (status == WEFT_OK)
        p->identity = all;
    else
        json_decref(all);
    return status;
}

weft_status weft_generator_continue(weft_generator *p, int64_t window, const float *frames)
{
    const int64_t bytes =
        p->options.given.carry * p->options.height * p->options.width * 3 * (int64_t)sizeof *frames;
    char hex[17] = "";
    WEFT_TRY(identify(p));
    if (frames)
        snprintf(hex, sizeof hex, "%016llx",
                 (unsigned long long)XXH3_64bits(frames, (size_t)bytes));
    WEFT_TRY(add(p->identity, "continues", json_pack("[I,s]", (json_int_t)window, hex)));
    return weft_given_carry(&p->given, frames);
}

/* [count] from prompt `first` of a run on; null beyond its end. */
static json_t *prompts_of(const weft_generator *p, int64_t first, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = first; list && i < first + count; i++) {
        const char *negative = weft_generator_negative(p, i);
        json_array_append_new(list, i < p->count
                                        ? json_pack("{s:s, s:s, s:I}", "prompt", p->prompts[i],
                                                    "negative", negative ? negative : "", "seed",
                                                    (json_int_t)p->seeds[i])
                                        : json_null());
    }
    return list;
}

/* ---- keeping -------------------------------------------------------------------------------- */

static weft_status write_kept(weft_generator *p, int64_t first, int64_t videos, weft_walk_file *k,
                              const char *path)
{
    WEFT_TRY(identify(p));
    k->settings = p->identity;
    k->prompts = prompts_of(p, first, videos);
    k->steps = p->options.steps - p->skipped;
    k->videos = videos;
    k->scale = weft_generator_scale(p);
    k->fps = p->options.fps > 0 ? p->options.fps : p->fps;
    const weft_status_code status =
        k->prompts ? weft_walk_file_write(path, k) : weft_fail(WEFT_E_MEMORY, "out of memory");
    json_decref(k->prompts);
    return status;
}

bool weft_generator_keeps_caches(const weft_generator *p)
{
    return p->cached;
}

/* ---- caches: a file of each rank, for the walk behind one step ------------------------------ */

/* dog.walk.cache- of dog.walk.safetensors: what all of their names begin with. */
static void caches_path(const char *walk, weft_buf *path)
{
    weft_buf_printf(path, "%.*s.cache-", (int)(strlen(walk) - strlen(".safetensors")), walk);
}

static weft_status own_caches_path(const weft_generator *p, const char *walk, int64_t step,
                                   weft_buf *path)
{
    caches_path(walk, path);
    weft_buf_printf(path, "%d-of-%d-%lld.safetensors", p->comm ? weft_comm_rank(p->comm) : 0,
                    p->comm ? weft_comm_ranks(p->comm) : 1, (long long)step);
    return weft_buf_check(path);
}

/* Those beside a walk of this rank (-1: of all) but for one (NULL: all). */
static void remove_caches(const char *walk, int rank, const char *but)
{
    weft_buf begin = {0}, dir = {0};
    weft_names names = {0};
    const int64_t folder = weft_path_base(walk) - walk;
    caches_path(walk, &begin);
    if (rank >= 0)
        weft_buf_printf(&begin, "%d-of-", rank);
    weft_buf_printf(&dir, "%.*s", folder > 1 ? (int)folder - 1 : 1, folder ? walk : ".");
    const bool listed = weft_buf_check(&begin) == WEFT_OK && weft_buf_check(&dir) == WEFT_OK &&
                        weft_list_dir(dir.data, false, &names) == WEFT_OK;
    for (int64_t i = 0; listed && i < names.count; i++) {
        const char *prefix = begin.data + folder;
        if (strncmp(names.name[i], prefix, strlen(prefix)) != 0 ||
            (but && !strcmp(names.name[i], weft_path_base(but))))
            continue;
        char *path = weft_path_join(dir.data, names.name[i]);
        if (path)
            (void)unlink(path);
        weft_free(path);
    }
    weft_names_free(&names);
    weft_buf_free(&begin);
    weft_buf_free(&dir);
}

void weft_generator_unkeep(const char *path)
{
    remove_caches(path, -1, NULL); /* before the walk, by which they are found again */
    (void)unlink(path);
}

typedef weft_status_code cache_fn(const weft_cache *cache, const char *prefix,
                                  weft_tensors_writer *w);

static weft_status each_cache(const weft_generator *p, cache_fn *with, weft_tensors_writer *w)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    char prefix[32];
    for (int i = 0; i < parts; i++) {
        snprintf(prefix, sizeof prefix, "cache.%d", i);
        WEFT_TRY(with(part[i]->cache, prefix, w));
    }
    return WEFT_OK;
}

static weft_status write_caches(const weft_generator *p, const char *path)
{
    weft_tensors_writer *w = NULL;
    weft_status_code status = weft_walk_file_writer(path, &w);
    if (status == WEFT_OK) {
        weft_tensors_writer_hasten(w);
        status = each_cache(p, weft_cache_declare, w);
    }
    if (status == WEFT_OK)
        status = each_cache(p, weft_cache_write, w);
    if (status == WEFT_OK)
        status = weft_tensors_writer_finish(w);
    weft_tensors_writer_free(w);
    return status;
}

static weft_status read_caches(weft_generator *p, const char *walk, int64_t step)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    char prefix[32];
    weft_buf path = {0};
    weft_tensors *file = NULL;
    weft_status_code status = own_caches_path(p, walk, step, &path);
    if (status == WEFT_OK && !weft_path_exists(path.data))
        status = weft_fail(WEFT_E_ARG,
                           "%s: there is no such file: what --cache held is kept beside a walk by "
                           "each of the ranks that made it; go on with as many, or remove %s to "
                           "begin anew",
                           path.data, walk);
    if (status == WEFT_OK)
        status = weft_tensors_open(path.data, &file);
    if (status == WEFT_OK)
        status = weft_tensors_verify(file);
    for (int i = 0; i < parts && status == WEFT_OK; i++) {
        snprintf(prefix, sizeof prefix, "cache.%d", i);
        status = weft_cache_read(part[i]->cache, prefix, file);
    }
    weft_tensors_close(file);
    weft_buf_free(&path);
    return status;
}

/* All ranks are here, and all hear of one that failed. */
static weft_status meet(const weft_generator *p, weft_status_code status)
{
    double failed = status != WEFT_OK;
    if (!p->comm)
        return status;
    WEFT_TRY(weft_comm_sum(p->comm, &failed, 1));
    return status == WEFT_OK && failed > 0
               ? weft_fail(WEFT_E_IO, "another rank could not keep the walk")
               : status;
}

/* Arrays of the sampler's history that the step behind `step` reads. */
static int64_t histories_at(const weft_generator *p, int64_t step)
{
    const int64_t all = p->options.batch * p->latent_floats;
    return step == p->options.steps - p->skipped
               ? 0
               : weft_sampler_kept(p->options.sampler, &p->scheduler.solver, all) / all;
}

static weft_status keep_walk(weft_generator *p, const char *path)
{
    weft_walk_file k = {.place = p->place_in_walk,
                        .histories = histories_at(p, p->place_in_walk.step),
                        .x = p->x,
                        .history = p->work};
    weft_generator_latents(p, k.latent);
    return write_kept(p, p->first, p->options.batch, &k, path);
}

/*     caches of step 3, each rank its own    beside those of step 2, which the walk goes with
 *     all ranks have written
 *     walk of step 3                         in the place of that of step 2: from here on it counts
 *     caches of step 2 go
 *
 * so whenever it is killed, the walk that is there has its caches. */
weft_status weft_generator_keep(weft_generator *p, const char *path)
{
    const int64_t step = p->place_in_walk.step;
    const int rank = p->comm ? weft_comm_rank(p->comm) : 0;
    weft_buf own = {0};
    weft_status_code status = weft_make_parent(path);
    if (!p->cached || step == p->options.steps - p->skipped)
        return status == WEFT_OK ? keep_walk(p, path) : status;
    if (status == WEFT_OK)
        status = own_caches_path(p, path, step, &own);
    if (status == WEFT_OK)
        status = write_caches(p, own.data);
    status = meet(p, status);
    if (status == WEFT_OK)
        status = meet(p, rank == 0 ? keep_walk(p, path) : WEFT_OK);
    if (status == WEFT_OK)
        remove_caches(path, rank, own.data);
    else if (status != WEFT_E_COMM && own.data) /* of a walk that is not there */
        (void)unlink(own.data);
    weft_buf_free(&own);
    return status;
}

weft_status weft_generator_keep_video(weft_generator *p, int64_t prompt, bool tries,
                                      const char *path)
{
    const int64_t frame = p->latent_floats / p->latent[0]; /* those before the video are left out */
    weft_walk_file k = {.place = {.step = p->options.steps - p->skipped},
                        .x = p->x + (prompt - p->first) * p->latent_floats + p->before * frame,
                        .tried = tries ? weft_vae_bytes(p->vae) : 0};
    weft_generator_latents(p, k.latent);
    k.latent[0] -= p->before;
    return write_kept(p, prompt, 1, &k, path);
}

/* ---- going on ------------------------------------------------------------------------------- */

static weft_status check_prompts(const weft_generator *p, const weft_walk_file *k, const char *path)
{
    json_t *now = prompts_of(p, 0, p->options.batch);
    weft_status_code status =
        now ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for the prompts of %s", path);
    if (status == WEFT_OK && json_array_size(k->prompts) != json_array_size(now))
        status = weft_fail(WEFT_E_ARG, "%s: it is of %lld videos, and this batch has %lld", path,
                           (long long)k->videos, (long long)p->options.batch);
    for (size_t i = 0; i < json_array_size(now) && status == WEFT_OK; i++) {
        const json_t *was = json_array_get(k->prompts, i), *is = json_array_get(now, i);
        status = json_is_object(was) && json_is_object(is)
                     ? weft_walk_file_compare(path, was, is, NULL)
                 : json_equal(was, is)
                     ? WEFT_OK
                     : weft_fail(WEFT_E_ARG, "%s: it is of another number of prompts", path);
    }
    json_decref(now);
    return status;
}

weft_status weft_generator_go_on(weft_generator *p, const char *path, const char *const *prompts,
                                 const uint64_t *seeds, int64_t count, int64_t *step)
{
    const int64_t all = p->options.batch * p->latent_floats, steps = p->options.steps - p->skipped;
    int64_t dim[4];
    weft_walk_file k;
    weft_generator_latents(p, dim);
    p->prompts = prompts;
    p->seeds = seeds;
    p->count = count;
    p->first = 0;
    weft_status_code status = weft_walk_file_damaged(weft_walk_file_open(path, &k));
    WEFT_TRY(status);
    status = identify(p);
    if (status == WEFT_OK)
        status = weft_walk_file_compare(path, k.settings, p->identity, NULL);
    if (status == WEFT_OK)
        status = check_prompts(p, &k, path);
    if (status == WEFT_OK &&
        (memcmp(k.latent, dim, sizeof dim) != 0 || k.steps != steps ||
         k.histories != histories_at(p, k.place.step) || k.place.step < 0 || k.place.step > steps ||
         k.place.draws < 0 || k.place.order < 0 || k.place.order > WEFT_SOLVER_ORDER))
        status = weft_fail(WEFT_E_FORMAT,
                           "%s: its latents or its place are not those of a walk of %lld steps of "
                           "%s; remove it to begin anew",
                           path, (long long)steps, p->options.sampler->name);
    if (status == WEFT_OK && p->cached && k.place.step < steps) {
        weft_generator_begin_caches(p);
        status = read_caches(p, path, k.place.step);
    }
    if (status == WEFT_OK) {
        memcpy(p->x, k.x, (size_t)all * sizeof *p->x);
        if (k.histories)
            memcpy(p->work, k.history, (size_t)(k.histories * all) * sizeof *p->work);
        p->place_in_walk = k.place;
        p->goes_on = true;
        *step = k.place.step;
    }
    weft_walk_file_close(&k);
    return status;
}
