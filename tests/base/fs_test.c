/* Folders: every file is listed once, with any links. */
#include "base/fs.h"
#include "base/memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void touch(const char *path)
{
    cr_assert_eq(weft_file_write_atomic(path, "x", 1), WEFT_OK, "%s", weft_error_message());
}

static char *joined(const weft_names *names)
{
    weft_buf text = {0};
    for (int64_t i = 0; i < names->count; i++)
        weft_buf_printf(&text, "%s ", names->name[i]);
    return text.data;
}

/* top: real files in a/b, links out to `store`, back up, to each other, to nothing. */
static void make_tree(char root[64])
{
    strcpy(root, "/tmp/weft-tree-XXXXXX");
    cr_assert(mkdtemp(root));
    cr_assert_eq(chdir(root), 0);
    static const char *const folders[] = {"top",     "top/a", "top/a/b",
                                          "top/out", "store", "store/deep"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        cr_assert_eq(mkdir(folders[i], 0777), 0);
    touch("top/a/b/one");
    touch("top/out/never");
    touch("store/two");
    touch("store/deep/three");
    cr_assert_eq(symlink("../../top", "top/a/round"), 0);
    cr_assert_eq(symlink("a/b", "top/again"), 0);
    cr_assert_eq(symlink("../store", "top/x"), 0);
    cr_assert_eq(symlink("../store/deep", "top/w"), 0); /* before x by name: its file is w/three */
    cr_assert_eq(symlink("../store", "store/self"), 0);
    cr_assert_eq(symlink("gone", "top/broken"), 0);
    cr_assert_eq(symlink("loop", "top/loop"), 0);
    cr_assert_eq(symlink("a/b/one", "top/file"), 0);
    cr_assert_eq(symlink("out", "top/to_out"), 0);
    cr_assert_eq(mkfifo("top/pipe", 0666), 0);
}

static void remove_tree(const char *root)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    cr_assert_eq(chdir("/"), 0);
    cr_assert_eq(system(command), 0);
}

Test(fs, a_tree_with_links_gives_every_file_once)
{
    char root[64];
    weft_names files, others;
    make_tree(root);
    cr_assert_eq(weft_list_tree("top", "top/out", &files, &others), WEFT_OK, "%s",
                 weft_error_message());
    char *a = joined(&files), *b = joined(&others);
    cr_assert_str_eq(a, "a/b/one file w/three x/two ");
    cr_assert_str_eq(b, "a/round again broken loop pipe x/deep x/self ");
    weft_free(a);
    weft_free(b);
    weft_names_free(&files);
    weft_names_free(&others);
    cr_assert_eq(weft_list_dir("top", true, &files),
                 WEFT_OK); /* that one does not follow links to folders */
    a = joined(&files);
    cr_assert_str_eq(a, "a/b/one file out/never ");
    weft_free(a);
    weft_names_free(&files);
    remove_tree(root);
}

Test(fs, many_folders)
{
    char root[] = "/tmp/weft-many-XXXXXX", path[64];
    weft_names files, others;
    cr_assert(mkdtemp(root));
    cr_assert_eq(chdir(root), 0);
    cr_assert_eq(mkdir("top", 0777), 0);
    cr_assert_eq(mkdir("store", 0777), 0);
    for (int i = 0; i < 500; i++) {
        snprintf(path, sizeof path, "store/%03d", i);
        cr_assert_eq(mkdir(path, 0777), 0);
        strcat(path, "/f");
        touch(path);
        snprintf(path, sizeof path, "../store/%03d", i);
        char link[64];
        snprintf(link, sizeof link, "top/%03d", i);
        cr_assert_eq(symlink(path, link), 0);
        snprintf(link, sizeof link, "top/z%03d", i);
        cr_assert_eq(symlink(path, link), 0);
    }
    cr_assert_eq(weft_list_tree("top", NULL, &files, &others), WEFT_OK);
    cr_assert_eq(files.count, 500);
    cr_assert_eq(others.count, 500);
    weft_names_free(&files);
    weft_names_free(&others);
    remove_tree(root);
}

Test(fs, a_tree_without_memory_is_an_error)
{
    char root[64];
    weft_names files, others;
    make_tree(root);
    int64_t n = 1;
    for (;; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_list_tree("top", NULL, &files, &others);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
    }
    cr_assert(n > 20);
    weft_names_free(&files);
    weft_names_free(&others);
    remove_tree(root);
}

/* A temporary file goes when its writer is provably dead: its lock is free and its process is
 * gone. */
Test(fs, leftovers_of_killed_writers)
{
    char root[] = "/tmp/weft-left-XXXXXX", path[128];
    cr_assert(mkdtemp(root));
    cr_assert_eq(chdir(root), 0);
    weft_file_writer alive;
    cr_assert_eq(weft_file_begin(&alive, "mine"), WEFT_OK);
    const pid_t child = fork();
    if (child == 0) { /* dies in the middle of a file */
        weft_file_writer w;
        (void)!weft_file_begin(&w, "killed");
        (void)!weft_file_write(&w, "half", 4);
        _exit(0);
    }
    /* the process exited, although its parent has not waited for it yet */
    cr_assert_eq(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    cr_assert_eq(kill(child, 0), 0);
    snprintf(path, sizeof path, "killed.tmp.%ld", (long)child);
    cr_assert(weft_path_exists(path));
    touch("name.tmp.x");
    touch("notes.tmp.12a");
    snprintf(path, sizeof path, "locked.tmp.%ld", (long)child);
    touch(path); /* the process exited, but the lock is held: by a writer on another machine */
    const int fd = open(path, O_RDONLY);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert_eq(weft_remove_leftovers(".", false), WEFT_OK, "%s", weft_error_message());
    weft_names names = {0};
    cr_assert_eq(weft_list_dir(".", false, &names), WEFT_OK);
    char *all = joined(&names), wanted[256];
    snprintf(wanted, sizeof wanted, "%s mine.tmp.%ld name.tmp.x notes.tmp.12a ", path,
             (long)getpid());
    cr_assert_str_eq(all, wanted);
    weft_free(all);
    weft_names_free(&names);
    close(fd);
    cr_assert_eq(mkdir("below", 0777), 0);
    snprintf(path, sizeof path, "below/killed.tmp.%ld", (long)child);
    touch(path);
    cr_assert_eq(weft_remove_leftovers(".", false), WEFT_OK);
    cr_assert(weft_path_exists(path));
    cr_assert_eq(weft_remove_leftovers(".", true), WEFT_OK);
    cr_assert_not(weft_path_exists(path));
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    weft_file_abort(&alive);
    remove_tree(root);
}

Test(fs, an_empty_name_is_no_folder)
{
    cr_assert_eq(weft_make_dirs(""), WEFT_E_ARG);
    cr_assert_eq(weft_make_parent("file"), WEFT_OK);
}
