/* tar: other programs read weft's archives, weft reads theirs, and damage affects only the damaged
 * members. */
#include "data/dataset.h"
#include "format/tar/tar.h"
#include "format/tar/tar_read.h"
#include "format/tar/tar_write.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static char folder[64], path[96];
static weft_arena *arena;

static void set_up(void)
{
    strcpy(folder, "/tmp/weft-tar-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.tar", folder);
    arena = weft_arena_create();
    setenv("WEFT_LOG", "error", 1);
}

static void tear_down(void)
{
    weft_arena_free(arena);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(tar, .init = set_up, .fini = tear_down);

static char long_name[301];

/* a.txt (5 bytes), b/c.bin (1,024), a name of 299 bytes, an empty file. */
static void write_archive(void)
{
    char block[1024];
    weft_tar_writer *w;
    memset(block, 7, sizeof block);
    for (int i = 0; i < 299; i++)
        long_name[i] = i % 50 == 49 ? '/' : (char)('a' + i % 26);
    uint64_t hash;
    int64_t bytes;
    cr_assert_eq(weft_tar_create(path, &w), WEFT_OK);
    cr_assert_eq(weft_tar_add(w, "a.txt", "hello", 5), WEFT_OK);
    cr_assert_eq(weft_tar_add(w, "b/c.bin", block, 1024), WEFT_OK);
    cr_assert_eq(weft_tar_add(w, long_name, "long", 4), WEFT_OK);
    cr_assert_eq(weft_tar_add(w, "empty", "", 0), WEFT_OK);
    cr_assert_eq(weft_tar_finish(w, &hash, &bytes), WEFT_OK, "%s", weft_error_message());
    weft_tar_free(w);
    weft_map map;
    cr_assert_eq(weft_map_open(path, &map), WEFT_OK);
    cr_assert_eq(map.bytes, bytes);
    cr_assert_eq(XXH3_64bits(map.data, (size_t)bytes), hash);
    weft_map_close(&map);
}

static void open_archive(weft_map *map, weft_tar_index *index)
{
    cr_assert_eq(weft_map_open(path, map), WEFT_OK);
    const weft_tar_input input = weft_tar_memory(map);
    cr_assert_eq(weft_tar_open(&input, path, arena, index), WEFT_OK, "%s", weft_error_message());
}

static void close_archive(weft_map *map, weft_tar_index *index)
{
    weft_tar_close(index);
    weft_map_close(map);
}

Test(tar, round_trip)
{
    weft_map map;
    weft_tar_index index;
    write_archive();
    open_archive(&map, &index);
    cr_assert_null(index.damage);
    cr_assert_eq(index.count, 4);
    cr_assert_str_eq(index.member[0].name, "a.txt");
    cr_assert(!memcmp(map.data + index.member[0].at, "hello", 5));
    cr_assert_eq(index.member[1].bytes, 1024);
    cr_assert_eq(map.data[index.member[1].at + 1023], 7);
    cr_assert_str_eq(index.member[2].name, long_name);
    cr_assert_eq(index.member[3].bytes, 0);
    close_archive(&map, &index);
}

Test(tar, others_read_it)
{
    char command[1024];
    write_archive();
    snprintf(command, sizeof command,
             "python3 -c 'import sys, tarfile\n"
             "t = tarfile.open(sys.argv[1]); m = t.getmembers()\n"
             "assert [x.name for x in m] == [\"a.txt\", \"b/c.bin\", sys.argv[2], \"empty\"], m\n"
             "assert t.extractfile(m[0]).read() == b\"hello\" and t.extractfile(m[1]).read() == "
             "bytes([7]) * 1024\n"
             "assert all((x.mode, x.uid, x.mtime) == (0o644, 0, 0) for x in m)' %s %s",
             path, long_name);
    cr_assert_eq(system(command), 0);
    snprintf(command, sizeof command,
             "cd %s && tar xf x.tar 2>err && [ ! -s err ] && [ \"$(cat a.txt)\" = hello ]", folder);
    cr_assert_eq(system(command), 0);
}

/* Archives by python's tarfile, which the fuzz corpus has in its three forms. */
Test(tar, of_others)
{
    const struct {
        const char *name;
        int count;
        const char *first;
    } known[] = {
        {"ustar", 5, "clips/a.mp4"}, {"gnu", 2, "long.mp4"}, {"pax", 2, "l\303\266ng.mp4"}};
    for (int i = 0; i < 3; i++) {
        weft_map map;
        weft_tar_index index;
        snprintf(path, sizeof path, "tests/fuzz/corpus/tar/%s", known[i].name);
        open_archive(&map, &index);
        cr_assert_null(index.damage);
        cr_assert_eq(index.count, known[i].count);
        const char *name = index.member[0].name;
        cr_assert_str_eq(name + strlen(name) - strlen(known[i].first), known[i].first);
        close_archive(&map, &index);
    }
}

static void overwrite(int64_t at, const char *text)
{
    FILE *f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    fwrite(text, 1, strlen(text), f);
    fclose(f);
}

/* A damaged header loses its member only; later members are read. */
Test(tar, damaged_header)
{
    weft_map map;
    weft_tar_index index;
    write_archive();
    overwrite(1024 + 20, "scratch"); /* in the header of b/c.bin */
    open_archive(&map, &index);
    cr_assert_eq(index.count, 3);
    cr_assert_eq(index.damaged_regions, 1);
    cr_assert_str_eq(index.member[1].name, long_name);
    cr_assert(strstr(index.damage, "byte 1024 of"), "%s", index.damage);
    close_archive(&map, &index);
}

/* GNU tar writes sizes that need more than 11 octal digits in base 256; any size may be. */
Test(tar, sizes_in_base_256)
{
    unsigned char header[512];
    unsigned sum = 0;
    weft_map map;
    weft_tar_index index;
    write_archive();
    FILE *f = fopen(path, "r+b");
    fseek(f, 1024, SEEK_SET); /* of b/c.bin, 1,024 bytes */
    cr_assert_eq(fread(header, 1, sizeof header, f), sizeof header);
    memset(header + 124, 0, 12);
    header[124] = 0x80;
    header[134] = 1024 >> 8;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < sizeof header; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    fseek(f, 1024, SEEK_SET);
    cr_assert_eq(fwrite(header, 1, sizeof header, f), sizeof header);
    fclose(f);
    open_archive(&map, &index);
    cr_assert_null(index.damage);
    cr_assert_eq(index.count, 4);
    cr_assert_eq(index.member[1].bytes, 1024);
    cr_assert_str_eq(index.member[2].name, long_name);
    close_archive(&map, &index);
}

/* A lost block has zeros and looks like the end of the archive. Its member is lost, later members are
 * read, and the damage is reported, also in a file of zeros only. An empty archive is not damaged. */
Test(tar, lost_blocks)
{
    weft_map map;
    weft_tar_index index;
    write_archive();
    static const char zeros[16384];
    FILE *f = fopen(path, "r+b");
    fseek(f, 1024, SEEK_SET); /* header and data of b/c.bin */
    fwrite(zeros, 1, 1024, f);
    fclose(f);
    open_archive(&map, &index);
    cr_assert_eq(index.count, 3);
    cr_assert_eq(index.damaged_regions, 1);
    cr_assert_str_eq(index.member[1].name, long_name);
    cr_assert(strstr(index.damage, "data follows the end mark of the archive at byte 1024"), "%s",
              index.damage);
    close_archive(&map, &index);
    for (int64_t bytes = 10240; bytes <= 16384; bytes += 6144) {
        const weft_map part = {.data = (void *)(uintptr_t)zeros, .bytes = bytes};
        const weft_tar_input input = weft_tar_memory(&part);
        const weft_status_code status = weft_tar_open(&input, path, arena, &index);
        cr_assert_eq(status, bytes > 10240 ? WEFT_E_FORMAT : WEFT_OK);
        if (status == WEFT_OK)
            weft_tar_close(&index);
    }
}

/* Every length of a cut: never a crash, never a member with bytes that are not there, and always
 * told. */
Test(tar, cut_anywhere)
{
    weft_map map;
    write_archive();
    cr_assert_eq(weft_map_open(path, &map), WEFT_OK);
    for (int64_t bytes = 0; bytes <= map.bytes; bytes += 37) {
        weft_tar_index index;
        const weft_map part = {.data = map.data, .bytes = bytes};
        const weft_tar_input input = weft_tar_memory(&part);
        const weft_status_code status = weft_tar_open(&input, path, arena, &index);
        if (status != WEFT_OK) {
            cr_assert_eq(status, WEFT_E_FORMAT);
            cr_assert_lt(bytes, 1024);
            continue;
        }
        for (int64_t i = 0; i < index.count; i++)
            cr_assert_leq(index.member[i].at + index.member[i].bytes, bytes);
        cr_assert(index.damage || bytes > map.bytes - 1024, "cut to %d: not told", (int)bytes);
        weft_tar_close(&index);
    }
    weft_map_close(&map);
}

/* All formats of GNU tar: names of more than 100 and 256 bytes are read. Sparse files are refused, and
 * the members before and after are read. */
Test(tar, of_gnu_tar)
{
    static const char *const forms[] = {"gnu", "oldgnu", "pax", "ustar"};
    for (int f = 0; f < 4; f++) {
        const bool ustar = f == 3;
        char command[1024];
        snprintf(command, sizeof command,
                 "cd %s && rm -rf d x.tar && mkdir d && n=$(printf %%0%dd 7) && mkdir d/$n && echo "
                 "one >d/$n/$n.a && echo two >d/b.txt; "
                 "truncate -s 3M d/c.bin; for i in $(seq 1 30); do echo x | dd of=d/c.bin bs=1 "
                 "seek=$((i * 90000)) "
                 "conv=notrunc status=none; done; echo end >d/e.txt; tar --format=%s %s "
                 "--sort=name -cf x.tar d/$n d/b.txt d/c.bin d/e.txt",
                 folder, ustar ? 80 : 180, forms[f], ustar ? "" : "--sparse");
        cr_assert_eq(system(command), 0);
        snprintf(path, sizeof path, "%s/x.tar", folder);
        weft_map map;
        weft_tar_index index;
        open_archive(&map, &index);
        cr_assert_eq(index.count, ustar ? 4 : 3, "%s: %d members", forms[f], (int)index.count);
        const weft_tar_member *first = &index.member[0], *last = &index.member[index.count - 1];
        cr_assert_eq((int64_t)strlen(first->name),
                     ustar ? 2 + 80 + 1 + 80 + 2 : 2 + 180 + 1 + 180 + 2);
        cr_assert(first->bytes == 4 && !memcmp(map.data + first->at, "one\n", 4));
        cr_assert_str_eq(last->name, "d/e.txt");
        cr_assert(!memcmp(map.data + last->at, "end\n", 4));
        if (ustar)
            cr_assert_null(index.damage);
        else
            cr_assert(strstr(index.damage, "sparse file") && index.damaged_regions == 1, "%s: %s",
                      forms[f], index.damage);
        close_archive(&map, &index);
    }
}

/* Links are not members; they are counted, and the first is named, also with a long name. */
Test(tar, links_are_counted)
{
    for (int digits = 1; digits <= 180; digits += 179) {
        char command[1024];
        snprintf(command, sizeof command,
                 "cd %s && rm -rf d x.tar && mkdir d && n=$(printf %%0%dd 7) && echo one >d/a && "
                 "ln -s a d/$n && ln d/a d/z && mkdir d/m && tar --sort=name -cf x.tar d",
                 folder, digits);
        cr_assert_eq(system(command), 0);
        snprintf(path, sizeof path, "%s/x.tar", folder);
        weft_map map;
        weft_tar_index index;
        open_archive(&map, &index);
        cr_assert_eq(index.count, 1);
        cr_assert_eq(index.links, 2);
        cr_assert_eq((int)strlen(index.link), 2 + digits, "%s", index.link);
        cr_assert_null(index.damage);
        close_archive(&map, &index);
    }
}

/* A member whose header has a valid checksum but a size beyond the end of the archive, or a size that
 * includes other members. */
Test(tar, lying_size)
{
    static const struct {
        const char *size;
        int count;
    } lies[] = {{"00000005000", 3}, {"77777777777", 3}, {"00000000001", 4}};
    for (int i = 0; i < 3; i++) {
        weft_map map;
        weft_tar_index index;
        char header[512];
        write_archive();
        FILE *f = fopen(path, "r+b");
        cr_assert(fseek(f, 1024, SEEK_SET) == 0 && fread(header, 1, 512, f) == 512);
        memcpy(header + 124, lies[i].size, 12);
        memset(header + 148, ' ', 8);
        unsigned sum = 0;
        for (int k = 0; k < 512; k++)
            sum += (unsigned char)header[k];
        snprintf(header + 148, 8, "%06o", sum);
        cr_assert(fseek(f, 1024, SEEK_SET) == 0 && fwrite(header, 1, 512, f) == 512);
        fclose(f);
        open_archive(&map, &index);
        cr_assert_eq(index.count, lies[i].count, "%s: %d", lies[i].size, (int)index.count);
        cr_assert_str_eq(index.member[0].name, "a.txt");
        cr_assert_str_eq(index.member[index.count - 1].name, "empty");
        for (int64_t k = 0; k < index.count; k++)
            cr_assert_leq(index.member[k].at + index.member[k].bytes, map.bytes);
        if (i > 0)
            cr_assert_not_null(index.damage);
        close_archive(&map, &index);
    }
}

/* Answers of webdataset 1.0.2 (tariterators.base_plus_ext and the skipping of __...__). */
Test(tar, webdataset_keys)
{
    static const struct {
        const char *name, *key, *suffix;
    } known[] = {{"a.mp4", "a", "mp4"},
                 {"d.x/a.mp4", "d.x/a", "mp4"},
                 {"a.latent.npy", "a", "latent.npy"},
                 {"./d/a.JSON", "./d/a", "JSON"},
                 {"a", NULL, NULL},
                 {"d.x/a", NULL, NULL},
                 {"__index__", NULL, NULL},
                 {".hidden", NULL, NULL},
                 {"a.", "a", ""}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int64_t length = -1;
        const char *suffix = NULL;
        const bool got = weft_webdataset_split(known[i].name, &length, &suffix);
        cr_assert_eq(got, known[i].key != NULL, "%s", known[i].name);
        if (!got)
            continue;
        cr_assert_eq(length, (int64_t)strlen(known[i].key), "%s", known[i].name);
        cr_assert_str_eq(suffix, known[i].suffix);
    }
}
