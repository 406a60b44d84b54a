#include "evaluate/video_pairs.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/source_kind.h"
#include "generate/generator/generator_denoise.h"
#include "generate/jobs/video_outputs.h"

#include <string.h>

/* ---- pairs ---------------------------------------------------------------------------------- */

/* The videos of one folder. */
typedef struct listed {
    json_t *by_file; /* line of each file, in the order of the list */
    bool has_list;
} listed;

/* A later line of a file replaces the earlier one, as in a resumed run. */
static weft_status_code on_line(void *user, json_t *line)
{
    const char *file = json_string_value(json_object_get(line, "file"));
    if (file)
        json_object_set(user, file, line);
    return WEFT_OK;
}

static weft_status list_files(const char *folder, json_t *by_file)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(folder, false, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (names.name[i][0] != '.' && weft_source_kind_of(names.name[i]) == WEFT_SOURCE_KIND_VIDEO)
            json_object_set_new(by_file, names.name[i], json_pack("{s:s}", "file", names.name[i]));
    weft_names_free(&names);
    return WEFT_OK;
}

static weft_status list_folder(const char *folder, listed *to)
{
    char *list = weft_path_join(folder, "prompts.jsonl");
    weft_status_code status = WEFT_OK;
    to->by_file = json_object();
    WEFT_GO(WEFT_ALLOCATED(list && to->by_file, "pairs of videos"));
    to->has_list = weft_path_exists(list);
    WEFT_GO(to->has_list ? weft_json_lines(list, on_line, to->by_file)
                         : list_files(folder, to->by_file));
out:
    weft_free(list);
    return status;
}

static bool is_pair(const json_t *a, const json_t *b, bool by_prompt)
{
    static const char *const of_prompt[] = {"prompt", "seed"}, *const of_file[] = {"file", NULL};
    const char *const *key = by_prompt ? of_prompt : of_file;
    for (int k = 0; k < 2 && key[k]; k++)
        if (!json_equal(json_object_get(a, key[k]), json_object_get(b, key[k])))
            return false;
    return true;
}

/* Appends the pair of two lines. */
static weft_status add_pair(const char *const folder[2], json_t *const line[2],
                            weft_video_pairs *pairs)
{
    weft_video_pair *p = &pairs->pair[pairs->count++];
    for (int side = 0; side < 2; side++) {
        const char *file = json_string_value(json_object_get(line[side], "file"));
        p->line[side] = json_incref(line[side]);
        p->path[side] = weft_path_join(folder[side], file);
        WEFT_TRY(WEFT_ALLOCATED(p->path[side], "pairs of videos"));
    }
    return WEFT_OK;
}

/* Pairs the lines; a paired line is removed from the second folder's object. */
static weft_status join(const char *const folder[2], const listed list[2], weft_video_pairs *pairs)
{
    const bool by_prompt = list[0].has_list && list[1].has_list;
    const int64_t all =
        (int64_t)(json_object_size(list[0].by_file) + json_object_size(list[1].by_file));
    const char *file, *other_file;
    json_t *line, *other;
    WEFT_TRY(WEFT_NEW(pairs->pair, all + 1, "pairs of videos"));
    json_object_foreach(list[0].by_file, file, line)
    {
        json_object_foreach(list[1].by_file, other_file, other)
        {
            if (!is_pair(line, other, by_prompt))
                continue;
            WEFT_TRY(add_pair(folder, (json_t *const[]){line, other}, pairs));
            json_object_del(list[1].by_file, other_file);
            break;
        }
    }
    pairs->without_partner = all - 2 * pairs->count;
    return pairs->count ? WEFT_OK
                        : weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = folder[1]),
                                     "no video here has the same %s as a video of %s",
                                     by_prompt ? "prompt and seed" : "file name", folder[0]);
}

weft_status weft_video_pairs_find(const char *const folder[2], weft_video_pairs *pairs)
{
    listed list[2] = {{0}};
    weft_status_code status = WEFT_OK;
    for (int side = 0; side < 2; side++)
        WEFT_GO(list_folder(folder[side], &list[side]));
    WEFT_GO(join(folder, list, pairs));
    if (pairs->without_partner)
        weft_warning(WEFT_MSG_SAMPLE_SKIPPED,
                     WEFT_AT(.file = folder[1], WEFT_NUMBER(pairs->without_partner)),
                     "%" PRId64 " videos of both folders have no pair and are not shown",
                     pairs->without_partner);
out:
    for (int side = 0; side < 2; side++)
        json_decref(list[side].by_file);
    if (status != WEFT_OK)
        weft_video_pairs_free(pairs);
    return status;
}

const char *weft_video_pair_prompt(const weft_video_pair *pair)
{
    const char *prompt = json_string_value(json_object_get(pair->line[0], "prompt"));
    return prompt ? prompt : json_string_value(json_object_get(pair->line[1], "prompt"));
}

void weft_video_pairs_free(weft_video_pairs *pairs)
{
    for (int64_t i = 0; i < pairs->count; i++)
        for (int side = 0; side < 2; side++) {
            json_decref(pairs->pair[i].line[side]);
            weft_free(pairs->pair[i].path[side]);
        }
    weft_free(pairs->pair);
    *pairs = (weft_video_pairs){0};
}

/* ---- generation ----------------------------------------------------------------------------- */

typedef struct pair_run {
    weft_video_outputs *outputs;
    weft_progress progress;
    int64_t batch;
} pair_run;

static weft_status_code on_frames(void *user, int64_t index, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    pair_run *run = user;
    return weft_video_outputs_frames(run->outputs, index, first_frame, count, frames);
}

static weft_status_code on_step(void *user, int64_t first_prompt, int64_t done, int64_t steps)
{
    pair_run *run = user;
    weft_progress_update(&run->progress, first_prompt / run->batch * steps + done, "");
    return WEFT_OK;
}

static void describe(const weft_generator *p, const char *const *prompt, int64_t count,
                     int64_t seed, weft_video_outputs_item *item)
{
    const weft_generator_options *s = weft_generator_settings(p);
    for (int64_t i = 0; i < count; i++)
        item[i] = (weft_video_outputs_item){.prompt = prompt[i],
                                            .seed = (uint64_t)(seed + i),
                                            .frames = s->frames,
                                            .height = s->height,
                                            .width = s->width,
                                            .steps = s->steps,
                                            .guidance = s->guidance,
                                            .sampler = s->sampler->name,
                                            .fps = weft_generator_fps(p)};
}

weft_status weft_video_pairs_generate(const char *model, const weft_generator_options *options,
                                      const char *const *prompt, int64_t count, int64_t seed,
                                      const char *folder)
{
    weft_generator *p = NULL;
    weft_video_outputs_item *item = NULL;
    uint64_t *seeds = NULL;
    pair_run run = {0};
    const weft_generator_sink sink = {.step = on_step, .frames = on_frames, .user = &run};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(item, count, "videos to compare"));
    WEFT_GO(WEFT_NEW(seeds, count, "videos to compare"));
    WEFT_GO(weft_generator_open(model, options, NULL, &p));
    WEFT_GO(weft_generator_bind(p));
    describe(p, prompt, count, seed, item);
    for (int64_t i = 0; i < count; i++)
        seeds[i] = item[i].seed;
    const weft_video_outputs_options out = {.out = folder, .items = item, .count = count};
    WEFT_GO(weft_video_outputs_open(&out, &run.outputs));
    const int64_t steps = item->steps;
    run.batch = weft_generator_settings(p)->batch;
    const int64_t rounds = (count + run.batch - 1) / run.batch;
    weft_progress_begin(&run.progress, weft_path_base(folder), rounds * steps, 0);
    WEFT_GO(weft_generator_run(p, prompt, seeds, count, &sink));
    weft_progress_end(&run.progress, rounds * steps, "");
    WEFT_GO(weft_video_outputs_finish(run.outputs));
out:
    weft_video_outputs_free(run.outputs);
    weft_generator_free(p);
    weft_free(seeds);
    weft_free(item);
    return status;
}
