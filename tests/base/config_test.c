#include "base/config.h"
#include "base/config_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bucket {
    int64_t frames;
    double weight;
    const char *label;
} bucket;
typedef struct optimizer {
    double rate;
    weft_f64_list betas;
    int kind;
    weft_string_list again;
} optimizer;
typedef struct run {
    int64_t steps, memory;
    bool quick;
    const char *name;
    weft_i64_list shape;
    weft_string_list words;
    optimizer optimizer;
    weft_section_list buckets;
    weft_config_tree tree;
} run;

static const char *const kinds[] = {"adamw", "sgd", NULL};
static const weft_key bucket_keys[] = {
    {"frames", WEFT_KEY_I64, offsetof(bucket, frames), NULL, "frames", "frames", .min = 1,
     .max = 99},
    {"weight", WEFT_KEY_F64, offsetof(bucket, weight), "1", "", "share"},
    {"label", WEFT_KEY_STRING, offsetof(bucket, label), "", "", "name", .earlier = "title"},
};
static const weft_section bucket_section = {"bucket", "shapes", sizeof(bucket), bucket_keys,
                                            WEFT_COUNT(bucket_keys)};
static const weft_key optimizer_keys[] = {
    {"rate", WEFT_KEY_F64, offsetof(optimizer, rate), "1e-4", "", "rate", .min = 0, .max = 1},
    {"betas", WEFT_KEY_F64_LIST, offsetof(optimizer, betas), "[0.9, 0.95]", "", "decay"},
    {"kind", WEFT_KEY_ENUM, offsetof(optimizer, kind), "adamw", "", "which", .choices = kinds,
     .also_values = "adaptive=adamw plain=sgd"},
    {"again", WEFT_KEY_STRING_LIST, offsetof(optimizer, again), "[auto]", "", "patterns"},
};
static const weft_section optimizer_section = {
    "optimizer",     "updates", sizeof(optimizer), optimizer_keys, WEFT_COUNT(optimizer_keys),
    .single = "rate"};
static const char *const moved_words[] = {"auto", "none", NULL};
static const weft_key run_keys[] = {
    {"steps", WEFT_KEY_I64, offsetof(run, steps), "1000", "", "steps", .min = 1, .max = 1e9,
     .also = "iterations updates", .earlier = "rounds turns"},
    {"memory", WEFT_KEY_I64, offsetof(run, memory), "1GiB", "bytes", "room"},
    {"quick", WEFT_KEY_BOOL, offsetof(run, quick), "false", "", "quick"},
    {"name", WEFT_KEY_STRING, offsetof(run, name), "x", "", "name"},
    {"shape", WEFT_KEY_I64_LIST, offsetof(run, shape), "[1, 2]", "", "dims", .min = 0, .max = 512},
    {"words", WEFT_KEY_STRING_LIST, offsetof(run, words), "[]", "", "words"},
    {"optimizer", WEFT_KEY_SECTION, offsetof(run, optimizer), .section = &optimizer_section},
    {"buckets", WEFT_KEY_SECTION_LIST, offsetof(run, buckets), .section = &bucket_section},
    {"tree", WEFT_KEY_TREE, offsetof(run, tree), .help = "fields of another table"},
    {"speed", WEFT_KEY_GONE, .help = "write steps"},
    {"again", WEFT_KEY_MOVED, .moved = "optimizer.again", .choices = moved_words},
};
static const weft_section run_section = {"run", "a run", sizeof(run), run_keys,
                                         WEFT_COUNT(run_keys)};

static weft_arena *arena;
static run got;
static void open_arena(void)
{
    arena = weft_arena_create();
}
static void close_arena(void)
{
    weft_arena_free(arena);
}
TestSuite(config, .init = open_arena, .fini = close_arena);

static weft_status parse(const char *text, const char *const *overrides, int count)
{
    return weft_config_parse(arena, text, (int64_t)strlen(text), "run.yaml", overrides, count,
                             &run_section, &got);
}

/* The last error has this class and place ("run.yaml:2: steps: "), and its text has the word that
 * the user must see: a suggestion, a limit, an expected type. */
static void expect_error(weft_message_class kind, const char *place, const char *word)
{
    char has[256];
    weft_message_location(weft_error_fields(), has, sizeof has);
    cr_assert_str_eq(weft_message_id(weft_error_class()), weft_message_id(kind), "%s",
                     weft_error_message());
    cr_assert_str_eq(has, place);
    cr_assert(strstr(weft_error_text(), word), "%s lacks %s", weft_error_text(), word);
}
#define FAILS(text, kind, place, word)                                                             \
    do {                                                                                           \
        cr_assert_eq(parse(text, NULL, 0), WEFT_E_CONFIG, "%s", text);                             \
        expect_error(WEFT_MSG_CONFIG_##kind, place, word);                                         \
    } while (0)
#define SET_FAILS(set, kind, place, word)                                                          \
    do {                                                                                           \
        cr_assert_eq(parse("buckets: [{frames: 5}]", (const char *[]){set}, 1), WEFT_E_CONFIG);    \
        expect_error(WEFT_MSG_CONFIG_##kind, place, word);                                         \
    } while (0)

Test(config, defaults_and_values)
{
    cr_assert_eq(parse("", NULL, 0), WEFT_OK, "%s", weft_error_message());
    cr_assert(got.steps == 1000 && got.memory == 1 << 30 && !got.quick);
    cr_assert(got.shape.count == 2 && got.shape.item[1] == 2 && got.buckets.count == 0);
    cr_assert_eq(got.optimizer.betas.item[1], 0.95);
    const char *text = "steps: 4k\nmemory: 80GiB\nquick: yes\nname: \"a: b\"\nwords: [x, 'y z']\n"
                       "optimizer: &o\n  kind: sgd\n  betas: [0.5]\n"
                       "buckets:\n - frames: 9\n - {frames: 17, weight: 2.5, label: l}\n";
    cr_assert_eq(parse(text, NULL, 0), WEFT_OK, "%s", weft_error_message());
    cr_assert(got.steps == 4000 && got.memory == (int64_t)80 << 30 && got.quick);
    cr_assert_str_eq(got.name, "a: b");
    cr_assert_str_eq(got.words.item[1], "y z");
    cr_assert(got.optimizer.kind == 1 && got.optimizer.rate == 1e-4 &&
              got.optimizer.betas.count == 1);
    const bucket *b = got.buckets.item;
    cr_assert(got.buckets.count == 2 && b[0].frames == 9 && b[0].weight == 1 && b[1].weight == 2.5);
}

Test(config, refusals_name_place_and_remedy)
{
    FAILS("steps: 5\nstesp: 6", UNKNOWN_KEY, "run.yaml:2: stesp: ", "'steps'");
    FAILS("rate: 5", UNKNOWN_KEY, "run.yaml:1: rate: ", "'optimizer.rate'");
    FAILS("optimizer:\n  zzz: 1", UNKNOWN_KEY, "run.yaml:2: zzz: ", "rate, betas, kind, again");
    FAILS("steps: many", VALUE, "run.yaml:1: steps: ", "1 to 1000000000");
    FAILS("steps: 1.5", VALUE, "run.yaml:1: steps: ", "integer");
    FAILS("steps: 0", VALUE, "run.yaml:1: steps: ", "1 to 1000000000");
    FAILS("steps: [1]", VALUE, "run.yaml:1: steps: ", "a list");
    FAILS("shape: [3, 600]", VALUE, "run.yaml:1: shape.1: ", "0 to 512");
    FAILS("optimizer: {kind: adam}", VALUE, "run.yaml:1: optimizer.kind: ", "adamw, sgd");
    FAILS("optimizer: {rate: nan}", VALUE, "run.yaml:1: optimizer.rate: ", "0 to 1");
    FAILS("quick: 3", VALUE, "run.yaml:1: quick: ", "true or false");
    FAILS("buckets:\n - weight: 3", MISSING_KEY, "run.yaml:2: buckets.0.frames: ", "frames");
    FAILS("buckets: 3", VALUE, "run.yaml:1: buckets: ", "a list");
    FAILS("buckets: [3]", VALUE, "run.yaml:1: buckets.0: ", "a mapping");
    FAILS("shape: 3", VALUE, "run.yaml:1: shape: ", "a list");
    FAILS("shape: [[3]]", VALUE, "run.yaml:1: shape.0: ", "an integer from 0 to 512");
    FAILS("words: {x: 1}", VALUE, "run.yaml:1: words: ", "a mapping");
    FAILS("steps: 1\nsteps: 2", SYNTAX, "run.yaml:2: steps: ", "run.yaml:1");
    FAILS("words:\n\t- x", SYNTAX, "run.yaml:2: ", "tab");
    FAILS("- 1", SYNTAX, "run.yaml:1: ", "");
    FAILS("steps: 1\n---\nsteps: 2", SYNTAX, "run.yaml:3: ", "'---'");
    cr_assert_eq(parse("steps: [1\nname: x", NULL, 0), WEFT_E_CONFIG);
    expect_error(WEFT_MSG_CONFIG_SYNTAX, "run.yaml:2: ", "");
    cr_assert_eq(weft_config_load(arena, "/nonexistent.yaml", NULL, 0, &run_section, &got),
                 WEFT_E_NOT_FOUND);
}

Test(config, overrides)
{
    const char *sets[] = {"steps=7",      "buckets.0.frames=9", "buckets.1.frames=3",
                          "shape.2=8",    "optimizer.rate=1",   "name=a: [b",
                          "words=[p, q]", "words.1=r: s"};
    cr_assert_eq(parse("buckets: [{frames: 5}]", sets, 8), WEFT_OK, "%s", weft_error_message());
    const bucket *b = got.buckets.item;
    cr_assert(got.steps == 7 && got.buckets.count == 2 && b[0].frames == 9 && b[1].frames == 3);
    cr_assert(got.shape.count == 3 && got.shape.item[0] == 1 && got.shape.item[2] == 8);
    cr_assert_str_eq(got.name, "a: [b");
    cr_assert_str_eq(got.words.item[1], "r: s");
    SET_FAILS("stepz=1", UNKNOWN_KEY, "--set stepz=1: stepz: ", "'steps'");
    SET_FAILS("steps=x", VALUE, "--set steps=x: steps: ", "integer");
    SET_FAILS("steps", VALUE, "--set steps: ", "KEY=VALUE");
    SET_FAILS("steps.a=1", VALUE, "--set steps.a=1: ", "'a'");
    SET_FAILS("buckets.4.frames=1", VALUE, "--set buckets.4.frames=1: ", "4");
    SET_FAILS("buckets.x.frames=1", VALUE, "--set buckets.x.frames=1: ", "'x'");
    SET_FAILS("a..b=1", VALUE, "--set a..b=1: ", "dots");
}

Test(config, alias_bombs_and_cycles_end)
{
    char bomb[4096] = "name: &a0 [x, x]\n";
    for (int i = 1; i < 40; i++)
        sprintf(bomb + strlen(bomb), "k%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
    cr_assert_eq(parse(bomb, NULL, 0), WEFT_E_CONFIG);
    expect_error(WEFT_MSG_CONFIG_SYNTAX, "run.yaml:1: ", "20000");
    cr_assert_eq(parse("words: &a [x, *a]", NULL, 0), WEFT_E_CONFIG);
    expect_error(WEFT_MSG_CONFIG_SYNTAX, "run.yaml:1: ", "64");
    char deep[4001];
    memset(deep, '[', 4000);
    deep[4000] = 0;
    cr_assert_eq(parse(deep, NULL, 0), WEFT_E_CONFIG);
}

Test(config, dump_loads_back)
{
    const char *text = "name: \"a\\\"\\n#: é\"\nmemory: 123456789012345678\n"
                       "words: ['', '- x', 'null', \"\\x80 \\N \\L \\P \\uFFFE \\u9800\"]\n"
                       "optimizer: {rate: 0.1, betas: [0.3333333333333333, 1e-300]}\n"
                       "buckets: [{frames: 1, label: 'true'}, {frames: 2}]\n";
    cr_assert_eq(parse(text, NULL, 0), WEFT_OK, "%s", weft_error_message());
    weft_buf first = {0}, second = {0};
    weft_config_dump(&run_section, &got, &first);
    cr_assert_eq(parse(first.data, NULL, 0), WEFT_OK, "%s\n%s", weft_error_message(), first.data);
    weft_config_dump(&run_section, &got, &second);
    cr_assert_str_eq(first.data, second.data);
    cr_assert_str_eq(got.name, "a\"\n#: é");
    cr_assert_str_eq(got.words.item[2], "null");
    cr_assert_str_eq(got.words.item[3], "\xc2\x80 \xc2\x85 \u2028 \u2029 \xef\xbf\xbe \u9800");
    cr_assert(got.memory == 123456789012345678 && got.optimizer.betas.item[1] == 1e-300);
    cr_assert_str_eq(((bucket *)got.buckets.item)[0].label, "true");
    weft_buf_free(&first);
    weft_buf_free(&second);
}

Test(config, changes_between_dumps)
{
    weft_buf out = {0};
    const char *before = "name: \"a\"\noptimizer:\n  lr: 1\n  betas: [0.9, 0.95]\nstages:\n  - "
                         "steps: 4\n    batch: 2\n";
    const char *now = "name: \"\"\noptimizer:\n  lr: 1\n  betas: [0.9, 0.99]\nstages:\n  - steps: "
                      "9\n    batch: 2\n  - steps: 3\n    batch: 1\nnew: 7\n";
    cr_assert_eq(weft_config_changes(before, now, &out), WEFT_OK, "%s", weft_error_message());
    cr_expect_str_eq(out.data,
                     "name: \"\", was a\noptimizer.betas: [0.9, 0.99], was [0.9, "
                     "0.95]\nstages.0.steps: 9, was 4\n"
                     "stages.1: {steps: 3, batch: 1}, was nothing\nnew: 7, was nothing\n");
    weft_buf_free(&out);
    cr_expect_eq(weft_config_changes(now, now, &out), WEFT_OK);
    cr_expect(!out.len);
    cr_expect_eq(weft_config_changes("a: [", now, &out), WEFT_E_CONFIG);
    weft_buf_free(&out);
}

Test(config, numbers_with_sizes)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-3", -3},
        {"4k", 4000},
        {"2M", 2000000},
        {"1.5K", 1500},
        {"1e9", 1000000000},
        {"64KiB", 65536},
        {"1 GiB", 1 << 30},
        {"3MB", 3000000},
        {"2Gi", (int64_t)2 << 30},
        {"5B", 5},
        {"9223372036854775807", INT64_MAX},
        {"77.3MiB", 81054924},
    };
    for (int i = 0; i < WEFT_COUNT(good); i++) {
        int64_t value;
        cr_assert(weft_parse_i64(good[i].text, &value), "%s", good[i].text);
        cr_assert_eq(value, good[i].value, "%s", good[i].text);
    }
    static const char *const bad[] = {"",
                                      " 1",
                                      "x",
                                      "1.5",
                                      "0x10",
                                      "inf",
                                      "nan",
                                      "1kk",
                                      "1e30",
                                      "4 kb x",
                                      "9223372036854775808",
                                      "k",
                                      "1ki2"};
    for (int i = 0; i < WEFT_COUNT(bad); i++) {
        int64_t value;
        cr_assert_not(weft_parse_i64(bad[i], &value), "%s", bad[i]);
    }
}

Test(config, allocation_failures_are_reported)
{
    const char *text = "name: b\nwords: [a]\nbuckets: [{frames: 1}]\n";
    const char *sets[] = {"shape.2=8", "buckets.1.frames=2"};
    int failures = 0;
    for (int64_t n = 1;; n++) {
        weft_alloc_fail_at(n);
        weft_arena *own = weft_arena_create();
        weft_status_code status = WEFT_E_MEMORY;
        if (own)
            status = weft_config_parse(own, text, (int64_t)strlen(text), "run.yaml", sets, 2,
                                       &run_section, &got);
        weft_alloc_fail_at(0);
        weft_arena_free(own);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
        cr_assert_lt(++failures, 1000);
    }
    cr_assert_geq(failures, 2);
}

Test(config, help_lists_every_key)
{
    weft_buf text = {0}, markdown = {0};
    weft_config_help(&run_section, false, &text);
    weft_config_help(&run_section, true, &markdown);
    cr_assert(strstr(text.data, "optimizer.kind") &&
              strstr(text.data, "adamw | sgd; default adamw"));
    cr_assert(strstr(text.data, "buckets.N.frames") && strstr(text.data, "required"));
    cr_assert(
        strstr(markdown.data, "| `buckets.N.frames` | integer (frames), 1 to 99 | required |"));
    weft_buf_free(&text);
    weft_buf_free(&markdown);
}

Test(nearest, names)
{
    static const char *const names[] = {"train", "generate", "curate", "frames_per_clip"};
    cr_assert_str_eq(weft_nearest_name("trian", names, 4), "train");
    cr_assert_str_eq(weft_nearest_name("Generat", names, 4), "generate");
    cr_assert_str_eq(weft_nearest_name("frames", names, 4), "frames_per_clip");
    cr_assert_null(weft_nearest_name("xyzzy", names, 4));
}

/* A mapping that another table reads: JSON, the places of its keys, and --set into it. */
Test(config, trees)
{
    const char *text = "steps: 3\ntree:\n  a: 1e-6\n  b: [true, no, ~, \"7\"]\n  c: {d: 4k}\n";
    const char *sets[] = {"tree.c.d=5", "tree.b.1=x: y", "tree.e.f=9"};
    cr_assert_eq(parse(text, NULL, 0), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(got.tree.json, "{\"a\": 9.9999999999999995e-07, \"b\": [true, \"no\", null, "
                                    "\"7\"], \"c\": {\"d\": 4000}}");
    cr_assert_eq(got.tree.count, 3);
    cr_assert_str_eq(got.tree.key[1], "b");
    cr_assert_str_eq(got.tree.key_where[1], "run.yaml:4");
    cr_assert_eq(parse(text, sets, 2), WEFT_OK, "%s", weft_error_message());
    cr_assert(strstr(got.tree.json, "\"d\": 5") && strstr(got.tree.json, "{\"x\": \"y\"}"), "%s",
              got.tree.json);
    cr_assert_eq(parse("", sets + 2, 1), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(got.tree.json, "{\"e\": {\"f\": 9}}");
    cr_assert_str_eq(got.tree.key_where[0], "--set tree.e.f=9");
    cr_assert_eq(parse("", NULL, 0), WEFT_OK);
    cr_assert_null(got.tree.json);
    FAILS("tree: 3", VALUE, "run.yaml:1: tree: ", "a mapping");
    const char *bad[] = {"tree.b.c.d=1"};
    cr_assert_eq(parse(text, bad, 1), WEFT_E_CONFIG);
    expect_error(WEFT_MSG_CONFIG_VALUE, "--set tree.b.c.d=1: ", "'c'");

    /* the dump loads back, and a change in the tree is reported with its key */
    weft_buf first = {0}, second = {0}, changes = {0};
    cr_assert_eq(parse(text, NULL, 0), WEFT_OK);
    weft_config_dump(&run_section, &got, &first);
    cr_assert_eq(parse(first.data, NULL, 0), WEFT_OK, "%s", weft_error_message());
    weft_config_dump(&run_section, &got, &second);
    cr_assert_str_eq(first.data, second.data);
    cr_assert_null(strstr(first.data, "speed"));
    cr_assert_eq(parse(text, sets, 1), WEFT_OK);
    weft_buf_free(&second);
    second = (weft_buf){0};
    weft_config_dump(&run_section, &got, &second);
    cr_assert_eq(weft_config_changes(first.data, second.data, &changes), WEFT_OK);
    cr_assert_str_eq(changes.data, "tree.c.d: 5, was 4000\n");
    weft_buf_free(&first);
    weft_buf_free(&second);
    weft_buf_free(&changes);
}

Test(config, other_names_and_single_values)
{
    const char *const sets[] = {"iterations=7"}, *const both[] = {"optimizer=3e-4", "iterations=9"};
    cr_assert_eq(parse("iterations: 5\noptimizer: 2e-4", NULL, 0), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(got.steps, 5);
    cr_assert_eq(got.optimizer.rate, 2e-4);
    cr_assert_eq(got.optimizer.betas.count, 2);
    cr_assert_eq(parse("steps: 5", sets, 1), WEFT_OK);
    cr_assert_eq(got.steps, 7);
    cr_assert_eq(parse("iterations: 5\noptimizer: {kind: sgd}", both, 2), WEFT_OK);
    cr_assert_eq(got.steps, 9);
    cr_assert_eq(got.optimizer.rate, 3e-4);
    FAILS("iterations: 5\nsteps: 6", SYNTAX, "run.yaml:1: iterations: ",
          "'iterations' and 'steps' are two names of one key, which run.yaml:2 sets");
    FAILS("optimizer: 2", VALUE, "run.yaml:1: optimizer.rate: ", "0 to 1");
    FAILS("optimizer: [1]", VALUE, "run.yaml:1: optimizer: ", "a mapping");
}

Test(config, old_keys_say_what_to_write)
{
    FAILS("steps: 1\nspeed: 2", UNKNOWN_KEY, "run.yaml:2: speed: ", "write steps");
    SET_FAILS("speed=2", UNKNOWN_KEY, "--set speed=2: speed: ", "write steps");
    FAILS("speeed: 2", UNKNOWN_KEY, "run.yaml:1: speeed: ", "steps, memory");
}

/* Standard error of weft_config_parse. */
static char *notices_of(const char *text, const char *const *overrides, int count)
{
    static char said[4096];
    FILE *file = tmpfile();
    fflush(stderr);
    const int kept = dup(2);
    dup2(fileno(file), 2);
    const weft_status_code status = parse(text, overrides, count);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_message());
    return said;
}

/* One notice for a key, however many places have its earlier name; none for other projects' names
 * and in dumps. */
Test(config, earlier_names)
{
    const char *const sets[] = {"rounds=7", "buckets.1.title=c"};
    const char *text = "rounds: 5\nbuckets:\n - {frames: 1, title: a}\n - frames: 2\n   title: b\n";
    cr_assert_str_eq(notices_of(text, NULL, 0),
                     "run.yaml:1: rounds: this key is now steps\n"
                     "run.yaml:3: buckets.0.title: this key is now buckets.0.label\n");
    const bucket *b = got.buckets.item;
    cr_assert_eq(got.steps, 5);
    cr_assert_str_eq(b[1].label, "b");
    cr_assert_str_eq(notices_of("buckets: [{frames: 1}, {frames: 2}]", sets, 2),
                     "--set rounds=7: rounds: this key is now steps\n"
                     "--set buckets.1.title=c: buckets.1.title: this key is now buckets.1.label\n");
    b = got.buckets.item;
    cr_assert_eq(got.steps, 7);
    cr_assert_str_eq(b[1].label, "c");
    cr_assert_str_eq(notices_of("updates: 4", NULL, 0), "");
    cr_assert_eq(got.steps, 4);
    cr_assert_str_eq(notices_of("turns: 4", sets, 1), "run.yaml:1: turns: this key is now steps\n");
    cr_assert_eq(got.steps, 7);
    FAILS("steps: 5\nname: x\nturns: 6", SYNTAX, "run.yaml:3: turns: ",
          "'turns' and 'steps' are two names of one key, which run.yaml:1 sets");
    FAILS("rouns: 5", UNKNOWN_KEY, "run.yaml:1: rouns: ", "known: steps");
    FAILS("title: x", UNKNOWN_KEY, "run.yaml:1: title: ", "'buckets.0.label'");
    cr_assert_eq(parse("optimizer: {kind: plain}", NULL, 0), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(got.optimizer.kind, 1);
    FAILS("optimizer: {kind: pla}", VALUE, "run.yaml:1: optimizer.kind: ", "one of adamw, sgd");

    weft_buf dump = {0}, earlier = {0};
    cr_assert_eq(parse(text, NULL, 0), WEFT_OK);
    weft_config_dump(&run_section, &got, &dump);
    weft_config_dump_earlier(&run_section, &got, &earlier);
    cr_assert(strstr(dump.data, "steps: 5\n") && strstr(dump.data, "label: \"b\"\n"));
    cr_assert(!strstr(dump.data, "rounds") && !strstr(dump.data, "title"));
    cr_assert(strstr(earlier.data, "rounds: 5\n") && strstr(earlier.data, "title: \"b\"\n"));
    run old;
    cr_assert_eq(
        weft_config_parse_dump(arena, earlier.data, earlier.len, "dump.yaml", &run_section, &old),
        WEFT_OK, "%s", weft_error_message());
    weft_buf_free(&earlier);
    earlier = (weft_buf){0};
    weft_config_dump(&run_section, &old, &earlier);
    cr_assert_str_eq(dump.data, earlier.data);
    weft_buf_free(&dump);
    weft_buf_free(&earlier);
    weft_config_help(&run_section, true, &dump);
    cr_assert(strstr(dump.data, "; also written `iterations`, `updates`, `rounds`, `turns`"));
    cr_assert(!strstr(dump.data, "`again`"));
    weft_buf_free(&dump);
}

static void expect_again(const char *text, const char *const *sets, int count, const char *words)
{
    weft_buf list = {0};
    cr_assert_eq(parse(text, sets, count), WEFT_OK, "%s", weft_error_message());
    for (int64_t i = 0; i < got.optimizer.again.count; i++)
        weft_buf_printf(&list, "%s ", got.optimizer.again.item[i]);
    cr_assert_str_eq(list.data ? list.data : "", words);
    weft_buf_free(&list);
}

/* A list of the top level that belongs to a section now. */
Test(config, a_key_that_moved)
{
    const char *const sets[] = {"again=[c, d]", "again.1=e"};
    expect_again("", NULL, 0, "auto ");
    expect_again("again: []\noptimizer: {again: [x]}", NULL, 0, "x ");
    expect_again("again: [a, b]", NULL, 0, "auto a b ");
    expect_again("again: a\noptimizer: {again: none}", NULL, 0, "none a ");
    expect_again("again: [a]\noptimizer: {again: [auto]}", sets, 2, "auto c e ");
    cr_assert_str_eq(notices_of("again: [a]", NULL, 0),
                     "run.yaml:1: again: this key is now optimizer.again\n");
    FAILS("optimizer:\n  again: [b]\nagain: [a]", SYNTAX, "run.yaml:3: again: ",
          "'again' and 'optimizer.again' are two names of one key, which run.yaml:2 sets");
    FAILS("again: {a: 1}", VALUE, "run.yaml:1: again: ", "a list");
}

/* Refused at once: the YAML library's scanner takes time with the square of open brackets. */
typedef struct place {
    const char *path;
    double weight;
} place;
typedef struct places {
    const char *path;
    weft_section_list sources;
} places;
static const weft_key place_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(place, path), NULL, "", "a folder"},
    {"weight", WEFT_KEY_F64, offsetof(place, weight), "1", "", "weight"},
};
static const weft_section place_section = {
    "place", "a place", sizeof(place), place_keys, WEFT_COUNT(place_keys), .single = "path"};
static const weft_key places_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(places, path), NULL, "", "a folder, or a list",
     .list = "sources"},
    {"sources", WEFT_KEY_SECTION_LIST, offsetof(places, sources), .section = &place_section},
};
static const weft_section places_section = {"places", "places", sizeof(places), places_keys,
                                            WEFT_COUNT(places_keys)};

/* "PATH|PATH*WEIGHT ..." of the config that a text and overrides make, and of its dump. */
static void expect_places(const char *text, const char *const *set, int count, const char *wanted)
{
    places p;
    weft_buf dump = {0};
    cr_assert_eq(weft_config_parse(arena, text, (int64_t)strlen(text), "run.yaml", set, count,
                                   &places_section, &p),
                 WEFT_OK, "%s", weft_error_message());
    for (int pass = 0; pass < 2; pass++) {
        char is[200];
        int at = snprintf(is, sizeof is, "%s|", p.path);
        for (int64_t i = 0; i < p.sources.count; i++) {
            const place *one = (const place *)p.sources.item + i;
            at += snprintf(is + at, sizeof is - (size_t)at, "%s*%g ", one->path, one->weight);
        }
        cr_assert_str_eq(is, wanted);
        weft_buf_free(&dump);
        weft_config_dump(&places_section, &p, &dump);
        cr_assert_eq(
            weft_config_parse_dump(arena, dump.data, dump.len, "dump", &places_section, &p),
            WEFT_OK, "%s", weft_error_message());
    }
    weft_buf_free(&dump);
}

/* A key with a list of its own takes a single value or the list, in the file and in overrides. */
Test(config, a_value_or_a_list)
{
    static const char list[] = "path: [a, {path: b, weight: 2}]";
    expect_places("path: a", NULL, 0, "a|");
    expect_places(list, NULL, 0, "|a*1 b*2 ");
    expect_places("sources: [a]", NULL, 0, "|a*1 ");
    expect_places(list, (const char *[]){"path=c"}, 1, "c|");
    expect_places("path: a", (const char *[]){"path=[b, c]"}, 1, "|b*1 c*1 ");
    expect_places(list, (const char *[]){"path.1.weight=3", "sources.0.path=c"}, 2, "|c*1 b*3 ");
    places p;
    static const char *const wrong[] = {"path: [a]\nsources: [b]", "path: []", "path: {a: b}", "{}",
                                        "sources: []"};
    for (int i = 0; i < WEFT_COUNT(wrong); i++)
        cr_assert_eq(weft_config_parse(arena, wrong[i], (int64_t)strlen(wrong[i]), "run.yaml", NULL,
                                       0, &places_section, &p),
                     WEFT_E_CONFIG, "%s", wrong[i]);
}

Test(config, brackets_without_end)
{
    enum { N = 100000 };
    char *text = malloc(N + 1);
    memset(text, '[', N);
    text[N] = 0;
    cr_assert_eq(parse(text, NULL, 0), WEFT_E_CONFIG);
    expect_error(WEFT_MSG_CONFIG_SYNTAX, "run.yaml:1: ", "64");
    free(text);
}
