use std::os::unix::fs::symlink;

use rustix::fs::StatVfsMountFlags;

use super::*;
use crate::drivers::Mount;
use crate::executor::mounts::take;
use crate::executor::world_test::can;

const FILES: &str = "system_u:object_r:container_file_t:s0";

#[test]
fn words_of_a_job_are_labels_with_the_level_of_who_starts_tasks() {
    for (files, process, shared, own) in [
        (
            FILES,
            "system_u:system_r:unconfined_service_t:s0\0",
            "s0",
            "s0",
        ),
        (FILES, "u:r:t:s0-s0:c0.c1023\n", "s0", "s0"),
        (FILES, "u:r:t:s0:c7,c9", "s0", "s0:c7,c9"),
        (FILES, "", "s0", "s0"),
        (FILES, "kernel", "s0", "s0"),
    ] {
        let labels = Labels::of(files, process);
        let label = |level: &str| format!("system_u:object_r:container_file_t:{level}");
        let (shared, own) = (label(shared), label(own));
        let named = ["z", "Z", "", "x"].map(|word| labels.named(word));
        assert_eq!(
            named,
            [Some(&*shared), Some(&*own), None, None],
            "{process}"
        );
    }
    // A policy without levels.
    let plain = Labels::of("system_u:object_r:file_t", "u:r:t");
    assert_eq!(plain.named("Z"), Some("system_u:object_r:file_t"));
}

#[test]
fn what_files_of_containers_are_called_is_what_the_policy_says() {
    let tmp = tempfile::tempdir().unwrap();
    assert_eq!(configured(tmp.path()), None);
    let config = "# a comment = here\nSELINUX=enforcing\nSELINUXTYPE = own\n";
    fs::write(tmp.path().join("config"), config).unwrap();
    assert_eq!(configured(tmp.path()), None);
    let contexts = tmp.path().join("own/contexts");
    fs::create_dir_all(&contexts).unwrap();
    let text = "process = \"u:r:container_t:s0\"\nfile = \"u:object_r:mine_t:s0\"\n";
    fs::write(contexts.join("lxc_contexts"), text).unwrap();
    assert_eq!(
        configured(tmp.path()).as_deref(),
        Some("u:object_r:mine_t:s0")
    );
    fs::write(contexts.join("lxc_contexts"), "file = \"\"\n").unwrap();
    assert_eq!(configured(tmp.path()), None);
}

/// The label of a file; of the link itself where it is one.
fn label(path: &Path) -> Option<String> {
    let mut value = vec![0; LONGEST];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value[..]).ok()?;
    value.truncate(length);
    String::from_utf8(value).ok()
}

#[test]
fn drv_06_what_is_mounted_has_the_label_of_the_job_and_what_links_in_it_lead_to_has_not() {
    let what = "labels of mounts";
    if !nix::unistd::geteuid().is_root() {
        return drover_testkit::skip(what, "mounts need root");
    }
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    fs::create_dir_all(at("volume/a/b")).unwrap();
    for name in ["volume/x", "volume/a/b/y", "outside"] {
        fs::write(at(name), "").unwrap();
    }
    symlink(at("outside"), at("volume/link")).unwrap();
    let plain = label(&at("outside"));
    let probe = setxattr(
        &*at("volume/x"),
        ATTRIBUTE,
        b"u:object_r:old_t:s0\0",
        XattrFlags::empty(),
    );
    if let Err(e) = probe {
        return drover_testkit::skip(what, &format!("no labels here: {e}"));
    }
    let mount = |word: &str, path: &str| Mount {
        host_path: path.into(),
        task_path: "/data".into(),
        selinux_label: word.to_owned(),
        ..Mount::default()
    };
    let volume = at("volume").display().to_string();
    let labels = Labels::of(FILES, "u:r:t:s0:c1,c2");
    let all = [
        "volume",
        "volume/x",
        "volume/a",
        "volume/a/b",
        "volume/a/b/y",
    ];
    // No label is requested, or the host has no labels.
    take(&mount("", &volume), Some(&labels)).unwrap();
    take(&mount("z", &volume), None).unwrap();
    assert_eq!(label(&at("volume/a")), plain);
    for (word, wanted) in [
        ("z", FILES),
        ("Z", "system_u:object_r:container_file_t:s0:c1,c2"),
    ] {
        let tree = take(&mount(word, &volume), Some(&labels)).unwrap();
        let wanted = Some(format!("{wanted}\0"));
        for name in all {
            assert_eq!(label(&at(name)), wanted, "{word} {name}");
        }
        let seen = format!("/proc/self/fd/{}/a/b/y", tree.as_raw_fd());
        assert_eq!(label(Path::new(&seen)), wanted, "through the mount");
        assert_eq!(label(&at("outside")), plain, "{word}: behind a link");
    }
    // One that is only read is labelled all the same.
    let only_read = Mount {
        read_only: true,
        ..mount("z", &volume)
    };
    take(&only_read, Some(&labels)).unwrap();
    assert_eq!(label(&at("volume/x")), Some(format!("{FILES}\0")));
    let refused = take(&mount("z", "/etc"), Some(&labels)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "its SELinux labels are the system's own"
    );
    assert_eq!(label(Path::new("/etc")), plain);
}

/// Set where this is the process that has few descriptors.
const FEW: &str = "DROVER_TEST_FEW_DESCRIPTORS";

#[test]
fn drv_06_a_tree_that_is_deeper_than_a_process_has_descriptors_is_labelled_whole() {
    let what = "labels of deep trees";
    if !nix::unistd::geteuid().is_root() {
        return drover_testkit::skip(what, "labels need root");
    }
    let tmp = tempfile::tempdir().unwrap();
    let probe = setxattr(
        tmp.path(),
        ATTRIBUTE,
        b"u:object_r:old_t:s0\0",
        XattrFlags::empty(),
    );
    if let Err(e) = probe {
        return drover_testkit::skip(what, &format!("no labels here: {e}"));
    }
    if std::env::var_os(FEW).is_none() {
        let name = concat!(
            module_path!(),
            "::drv_06_a_tree_that_is_deeper_than_a_process_has_descriptors_is_labelled_whole"
        );
        let name = name.split_once("::").unwrap().1;
        let script = "ulimit -n 120; exec \"$0\" --exact \"$1\"";
        let mut again = std::process::Command::new("sh");
        again
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap());
        let done = again.arg(name).env(FEW, "1").output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && output.contains("1 passed"),
            "{output}"
        );
        return;
    }
    // Each level has a file and two folders, one of which continues.
    let top = tmp.path().join("top");
    let mut at = top.clone();
    let mut files = Vec::new();
    for _ in 0..200 {
        for folder in [at.join("d"), at.join("e")] {
            fs::create_dir_all(&folder).unwrap();
            files.push(folder.join("file"));
            fs::write(folder.join("file"), "").unwrap();
        }
        at.push("d");
    }
    let tree = rustix::fs::open(&top, FOUND, Mode::empty()).unwrap();
    whole(&tree, FILES).unwrap();
    for file in files {
        assert_eq!(
            label(&file),
            Some(format!("{FILES}\0")),
            "{}",
            file.display()
        );
    }
}

#[test]
fn what_is_mounted_to_be_read_is_so_with_all_that_is_mounted_below_it() {
    if !can("mounts below others") {
        return;
    }
    // Hosts have a file system of its own at the second.
    let devices = Mount {
        host_path: "/dev".into(),
        read_only: true,
        ..Mount::default()
    };
    let tree = take(&devices, None).unwrap();
    for below in ["", "/shm"] {
        let seen = format!("/proc/self/fd/{}{below}", tree.as_raw_fd());
        let flags = rustix::fs::statvfs(seen.as_str()).unwrap().f_flag;
        assert!(flags.contains(StatVfsMountFlags::RDONLY), "/dev{below}");
    }
}
