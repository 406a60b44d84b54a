#include "curate/synth.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "video/shapes.h"
#include "video/writer.h"

#include <math.h>
#include <string.h>

typedef enum joint { JOINT_CUT, JOINT_DISSOLVE, JOINT_FADE } joint;

typedef struct synth {
    const weft_synth_options *o;
    const char *dir;
    weft_rng rng;
    bool held[WEFT_SHAPE_ALL];
    int first, end;            /* combinations that the set is of */
    int order[WEFT_SHAPE_ALL]; /* training combinations in shuffled rounds */
    int order_count, order_at;
    weft_buf cuts;
    uint8_t *frame, *other;
    weft_synth_report report;
    weft_progress progress;
} synth;

static void shuffle(weft_rng *rng, int *list, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)weft_rng_below(rng, (uint64_t)i + 1), t = list[i];
        list[i] = list[j];
        list[j] = t;
    }
}

/* Combinations of all four colours, or of one. */
static void range_of(int colour, int *first, int *end)
{
    const int each = WEFT_SHAPE_KINDS * WEFT_SHAPE_DIRECTIONS;
    *first = colour < 0 ? 0 : colour * each;
    *end = colour < 0 ? WEFT_SHAPE_COMBINATIONS : *first + each;
}

/* Held-out combinations of each pair of words: (colour, shape), (colour, direction),
 * (shape, direction). */
typedef struct {
    int cs[WEFT_SHAPE_PALETTE][WEFT_SHAPE_KINDS];
    int cd[WEFT_SHAPE_PALETTE][WEFT_SHAPE_DIRECTIONS];
    int sd[WEFT_SHAPE_KINDS][WEFT_SHAPE_DIRECTIONS];
} lost_pairs;

/* Holds out a combination if each of its pairs has lost fewer than `most` and keeps one. */
static bool hold_out(lost_pairs *lost, weft_shape_words w, int colour, int most)
{
    int *pairs[] = {&lost->cs[w.colour][w.shape], &lost->cd[w.colour][w.direction],
                    &lost->sd[w.shape][w.direction]};
    /* one colour: other data shows how a shape moves */
    const int all[] = {WEFT_SHAPE_DIRECTIONS, WEFT_SHAPE_KINDS,
                       colour < 0 ? WEFT_SHAPE_COLOURS : WEFT_SHAPE_ALL};
    for (int k = 0; k < 3; k++)
        if (*pairs[k] >= most || *pairs[k] + 1 >= all[k])
            return false;
    for (int k = 0; k < 3; k++)
        ++*pairs[k];
    return true;
}

weft_status weft_synth_hold_out(int64_t count, int colour, uint64_t seed,
                                bool chosen[WEFT_SHAPE_ALL])
{
    int list[WEFT_SHAPE_ALL], first, end;
    lost_pairs lost = {0};
    range_of(colour, &first, &end);
    memset(chosen, 0, WEFT_SHAPE_ALL * sizeof *chosen);
    weft_rng rng = weft_rng_make(weft_seed_mix(seed, 0x68656c64), WEFT_RNG_SYNTH);
    for (int i = first; i < end; i++)
        list[i - first] = i;
    shuffle(&rng, list, end - first);
    int64_t left = count;
    for (int most = 1; most < WEFT_SHAPE_COMBINATIONS; most++)
        for (int i = 0; i < end - first && left > 0; i++)
            if (!chosen[list[i]] && hold_out(&lost, weft_shape_words_of(list[i]), colour, most)) {
                chosen[list[i]] = true;
                left--;
            }
    if (left > 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(count)),
                          "%" PRId64
                          " held-out combinations leave a pair of words without a video in "
                          "training; hold out at most %" PRId64 " with this seed",
                          count, count - left);
    return WEFT_OK;
}

static int next_combination(synth *s)
{
    if (s->order_at == s->order_count) {
        shuffle(&s->rng, s->order, s->order_count);
        s->order_at = 0;
    }
    return s->order[s->order_at++];
}

/* Background luma that differs from the last one by at least 35, so that each boundary is
 * visible. */
static double next_luma(synth *s, double last)
{
    for (;;) {
        const double luma = 40 + 170 * weft_rng_f64(&s->rng);
        if (fabs(luma - last) >= 35)
            return luma;
    }
}

static int64_t shot_frames(synth *s)
{
    return s->o->min_frames +
           (int64_t)weft_rng_below(&s->rng, (uint64_t)(s->o->max_frames - s->o->min_frames + 1));
}

/* Caption of a clip; some captions omit the colour. */
static const char *write_caption(synth *s, weft_shape_words words, char caption[64])
{
    if (s->o->nameless > 0 && weft_rng_f64(&s->rng) < s->o->nameless)
        words.colour = -1;
    return weft_shape_caption(words, caption);
}

static json_t *words_json(weft_shape_words words)
{
    char caption[64];
    return json_pack("{s:s,s:s,s:s,s:s}", "colour", weft_shape_colour_name(words.colour), "shape",
                     weft_shape_kind_name(words.shape), "direction",
                     weft_shape_direction_name(words.direction), "caption",
                     weft_shape_caption(words, caption));
}

static weft_status open_writer(const synth *s, const char *path, weft_video_writer **out)
{
    const weft_video_writer_options o = {
        .width = s->o->size, .height = s->o->size, .fps = s->o->fps, .crf = 14, .preset = "fast"};
    return weft_video_writer_open(path, &o, out);
}

/* Writes one scene as a file with its caption. */
static weft_status write_single(synth *s, const char *folder, const char *name,
                                weft_shape_words words, double luma)
{
    const int64_t frames = shot_frames(s);
    const weft_shape_scene scene =
        weft_shape_scene_make(&s->rng, words, s->o->size, s->o->radius, frames, luma);
    weft_buf path = {0}, text = {0};
    char caption[64];
    weft_video_writer *writer = NULL;
    weft_buf_printf(&path, "%s/%s/%s.mp4", s->dir, folder, name);
    weft_buf_printf(&text, "%s/%s/%s.txt", s->dir, folder, name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_buf_check(&text));
    WEFT_GO(open_writer(s, path.data, &writer));
    for (int64_t t = 0; t < frames; t++) {
        weft_shape_scene_draw(&scene, s->o->size, (double)t, s->frame);
        WEFT_GO(weft_video_writer_rgb(writer, s->frame, s->o->size * 3));
    }
    WEFT_GO(weft_video_writer_finish(writer));
    write_caption(s, words, caption);
    WEFT_GO(weft_file_write_atomic(text.data, caption, (int64_t)strlen(caption)));
    s->report.frames += frames;
out:
    weft_video_writer_close(writer);
    weft_buf_free(&path);
    weft_buf_free(&text);
    return status;
}

/* Frame k of 1 .. n mixed frames between `from` at its time t and `to` at its time u. */
static void draw_joint(synth *s, joint kind, const weft_shape_scene *from, double t,
                       const weft_shape_scene *to, double u, int64_t k, int64_t n)
{
    const int64_t size = s->o->size;
    const double share = (double)k / (double)(n + 1);
    weft_shape_scene_draw(from, size, t, s->frame);
    weft_shape_scene_draw(to, size, u, s->other);
    double a = 1 - share, b = share;
    if (kind == JOINT_FADE) { /* fade to black in the middle and back */
        a = share < 0.5 ? 1 - 2 * share : 0;
        b = share < 0.5 ? 0 : 2 * share - 1;
    }
    for (int64_t i = 0; i < size * size * 3; i++)
        s->frame[i] = (uint8_t)(a * s->frame[i] + b * s->other[i] + 0.5);
}

static weft_status note_boundary(synth *s, const char *name, joint kind, int64_t start, int64_t end)
{
    if (kind == JOINT_CUT) {
        weft_buf_printf(&s->cuts,
                        "{\"file\":\"train/%s.mp4\",\"type\":\"cut\",\"frame\":%" PRId64 "}\n",
                        name, start);
        s->report.cuts++;
    } else {
        weft_buf_printf(&s->cuts,
                        "{\"file\":\"train/%s.mp4\",\"type\":\"gradual\",\"start\":%" PRId64
                        ",\"end\":%" PRId64 "}\n",
                        name, start, end);
        s->report.graduals++;
    }
    return weft_buf_check(&s->cuts);
}

/* `count` shots cut together, and the sidecar with their spans. A transition's frames show both
 * scenes moving on, and belong to no shot. */
static weft_status write_reel(synth *s, const char *name, int64_t count)
{
    weft_buf path = {0}, side = {0};
    weft_video_writer *writer = NULL;
    json_t *shots = json_array(), *root = NULL;
    weft_shape_scene scene = {0}, last = {0};
    double luma = -1000;
    int64_t at = 0, last_frames = 0;
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&path, "%s/train/%s.mp4", s->dir, name);
    weft_buf_printf(&side, "%s/train/%s.json", s->dir, name);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_buf_check(&side));
    WEFT_GO(open_writer(s, path.data, &writer));
    for (int64_t k = 0; k < count; k++) {
        const weft_shape_words words = weft_shape_words_of(next_combination(s));
        const int64_t frames = shot_frames(s);
        luma = next_luma(s, luma);
        const joint kind = weft_rng_f64(&s->rng) >= s->o->gradual_share ? JOINT_CUT
                           : weft_rng_below(&s->rng, 3)                 ? JOINT_DISSOLVE
                                                                        : JOINT_FADE;
        const int64_t mixed =
            kind == JOINT_CUT ? 0
                              : (kind == JOINT_FADE ? 12 : 6) + (int64_t)weft_rng_below(&s->rng, 9);
        /* Inside the frame during its own frames; may leave it in a transition. */
        scene = weft_shape_scene_make(&s->rng, words, s->o->size, s->o->radius, frames, luma);
        if (k > 0) {
            for (int64_t m = 1; m <= mixed; m++) {
                draw_joint(s, kind, &last, (double)(last_frames + m - 1), &scene,
                           (double)(m - 1 - mixed), m, mixed);
                WEFT_GO(weft_video_writer_rgb(writer, s->frame, s->o->size * 3));
            }
            WEFT_GO(note_boundary(s, name, kind, at, at + mixed - 1));
            at += mixed;
        }
        for (int64_t t = 0; t < frames; t++) {
            weft_shape_scene_draw(&scene, s->o->size, (double)t, s->frame);
            WEFT_GO(weft_video_writer_rgb(writer, s->frame, s->o->size * 3));
        }
        char caption[64];
        json_t *shot = words_json(words);
        json_object_set_new(shot, "caption", json_string(write_caption(s, words, caption)));
        json_object_set_new(shot, "start", json_integer(at));
        json_object_set_new(shot, "end", json_integer(at + frames - 1));
        json_array_append_new(shots, shot);
        at += frames;
        last = scene;
        last_frames = frames;
    }
    WEFT_GO(weft_video_writer_finish(writer));
    root = json_pack("{s:f,s:I,s:O}", "fps", s->o->fps, "frames", (json_int_t)at, "shots", shots);
    if (!root)
        status = weft_no_memory("the synthetic footage");
    else
        status = weft_json_save(side.data, root);
    s->report.frames += at;
out:
    json_decref(root);
    json_decref(shots);
    weft_video_writer_close(writer);
    weft_buf_free(&path);
    weft_buf_free(&side);
    return status;
}

static weft_status write_training(synth *s)
{
    int64_t left = s->o->shots, reels = 0, singles = 0;
    const int64_t single_total = (int64_t)((double)left * s->o->single_share + 0.5);
    char name[32];
    while (left > 0) {
        const int64_t for_reels = left - (single_total - singles);
        if (for_reels >= 2 && s->o->max_per_video >= 2) {
            int64_t count =
                2 + (int64_t)weft_rng_below(&s->rng, (uint64_t)(s->o->max_per_video - 1));
            /* A video of several shots must not end up with one shot. */
            if (count > for_reels || for_reels - count == 1)
                count = for_reels < s->o->max_per_video ? for_reels : count - 1;
            count = count < 2 ? 2 : count;
            snprintf(name, sizeof name, "v%04lld", (long long)reels++);
            WEFT_TRY(write_reel(s, name, count));
            left -= count;
            s->report.shots += count;
        } else {
            snprintf(name, sizeof name, "s%04lld", (long long)singles++);
            WEFT_TRY(write_single(s, "train", name, weft_shape_words_of(next_combination(s)),
                                  40 + 170 * weft_rng_f64(&s->rng)));
            left--;
            s->report.shots++;
        }
        s->report.videos++;
        weft_progress_update(&s->progress, s->report.shots, "shots");
    }
    return WEFT_OK;
}

static weft_status write_held_out(synth *s)
{
    weft_buf path = {0};
    json_t *held = json_array(), *training = json_array();
    json_t *root = json_pack("{s:I,s:o,s:o}", "seed", (json_int_t)s->o->seed, "held_out", held,
                             "training", training);
    weft_status_code status = WEFT_OK;
    int64_t clip = 0;
    char name[32];
    for (int i = s->first; i < s->end; i++)
        json_array_append_new(s->held[i] ? held : training, words_json(weft_shape_words_of(i)));
    for (int64_t round = 0; round < s->o->held_out_clips; round++)
        for (int i = s->first; i < s->end; i++) {
            if (!s->held[i])
                continue;
            snprintf(name, sizeof name, "h%03lld", (long long)clip++);
            WEFT_GO(write_single(s, "heldout", name, weft_shape_words_of(i),
                                 40 + 170 * weft_rng_f64(&s->rng)));
            s->report.held_out_clips++;
            weft_progress_update(&s->progress, s->report.shots + s->report.held_out_clips,
                                 "held-out clips");
        }
    weft_buf_printf(&path, "%s/heldout.json", s->dir);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_json_save(path.data, root));
    weft_buf_free(&path);
    weft_buf_printf(&path, "%s/cuts.jsonl", s->dir);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_file_write_atomic(path.data, s->cuts.data ? s->cuts.data : "", s->cuts.len));
out:
    weft_buf_free(&path);
    json_decref(root);
    return status;
}

static weft_status check_options(const weft_synth_options *o)
{
    if (o->size < 32 || o->size > 1024 || o->size % 2)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(o->size)),
                          "the size %" PRId64 " is not an even number of 32 to 1024 pixels",
                          o->size);
    if (o->min_frames < 5 || o->max_frames < o->min_frames || o->max_frames > 10000)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "shots of %" PRId64 " to %" PRId64
                          " frames are not possible; 5 <= min <= max <= 10000",
                          o->min_frames, o->max_frames);
    if (o->shots < 1 || o->shots > 1000000 || o->max_per_video < 1 || o->held_out < 0 ||
        o->held_out_clips < 0 || !(o->radius >= 4 && o->radius <= 20) ||
        !(o->fps > 0 && o->fps <= 240) || !(o->single_share >= 0 && o->single_share <= 1) ||
        !(o->gradual_share >= 0 && o->gradual_share <= 1) ||
        !(o->nameless >= 0 && o->nameless <= 1))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a count, rate or share is outside its range");
    if (o->colour && weft_shape_colour(o->colour) < 0) {
        weft_buf known = {0};
        for (int i = 0; i < WEFT_SHAPE_PALETTE; i++)
            weft_buf_printf(&known, "%s%s", i ? ", " : "", weft_shape_colour_name(i));
        const weft_status_code status = weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = o->colour),
            "'%s' is not a known colour; use one of %s", o->colour, known.data ? known.data : "");
        weft_buf_free(&known);
        return status;
    }
    return WEFT_OK;
}

static weft_status make_folder(const char *path)
{
    weft_names files = {0};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_make_dirs(path));
    WEFT_GO(weft_list_dir(path, false, &files));
    if (files.count > 0)
        WEFT_GO(weft_error(WEFT_MSG_FILE_EXISTS, WEFT_AT(.file = path),
                           "the folder has files already; give another folder or remove it"));
out:
    weft_names_free(&files);
    return status;
}

static weft_status make_folders(const char *dir)
{
    static const char *const names[] = {"train", "heldout"};
    for (int i = 0; i < 2; i++) {
        char *path = weft_path_join(dir, names[i]);
        WEFT_TRY(WEFT_ALLOCATED(path, "the synthetic footage"));
        const weft_status_code status = make_folder(path);
        weft_free(path);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static weft_status write_all(synth *s)
{
    WEFT_TRY(WEFT_ALLOCATED(s->frame && s->other, "the synthetic footage"));
    WEFT_TRY(write_training(s));
    return write_held_out(s);
}

weft_status weft_synth_write(const char *dir, const weft_synth_options *options,
                             weft_synth_report *report)
{
    WEFT_TRY(check_options(options));
    synth s = {.o = options, .dir = dir, .rng = weft_rng_make(options->seed, WEFT_RNG_SYNTH)};
    const int colour = options->colour ? weft_shape_colour(options->colour) : -1;
    WEFT_TRY(weft_synth_hold_out(options->held_out, colour, options->seed, s.held));
    range_of(colour, &s.first, &s.end);
    WEFT_TRY(make_folders(dir));
    for (int i = s.first; i < s.end; i++)
        if (!s.held[i])
            s.order[s.order_count++] = i;
    s.order_at = s.order_count; /* the first use shuffles */
    s.frame = weft_alloc_aligned(options->size * options->size * 3 + 64);
    s.other = weft_alloc_aligned(options->size * options->size * 3 + 64);
    const int64_t total = options->shots + options->held_out * options->held_out_clips;
    weft_progress_begin(&s.progress, "synth", total, 0);
    s.progress.quiet |= options->quiet;
    const weft_status_code status = write_all(&s);
    weft_progress_end(&s.progress, s.report.shots + s.report.held_out_clips, NULL);
    weft_free(s.frame);
    weft_free(s.other);
    weft_buf_free(&s.cuts);
    WEFT_TRY(status);
    *report = s.report;
    return WEFT_OK;
}
