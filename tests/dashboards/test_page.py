"""The page of a run in a real browser: numbers, answer and errors."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import toys

from dashboards import configuration, page
from dashboards.drawing import PALETTE
from dashboards.gallery import PRINTED, Gallery, Picture, Record, encode_png
from dashboards.run import Run, open_run
from orchestrator.planning.plan import plan_of
from orchestrator.run_folder.journal import Journal, cell_description
from orchestrator.runs.lifecycle import start
from orchestrator.spec import specification
from orchestrator.spec.config_parts import plain
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tasks.datasets.features import Words
from tests.dashboards import made, pages, test_gallery, test_provenance
from tests.dashboards.test_certificate import PAPER
from tests.dashboards.test_figures import PRINTED_WIDTH
from tests.support.browser import Browser, Page
from tests.support.shell import Shell

STRUCTURE = """({
  headings: [...document.querySelectorAll("h1, h2, h3, h4")].map(each => Number(each.tagName[1])),
  landmarks: ["header", "nav", "main", "footer"].map(name => document.querySelectorAll(`body > ${name}`).length),
  ids: [...document.querySelectorAll("[id]")].map(each => each.id),
  unnamed: [...document.querySelectorAll("svg:not([aria-hidden]), img, [role=region], nav, section")]
    .filter(each => !(each.getAttribute("aria-label") || each.alt || each.getAttribute("aria-labelledby")))
    .map(each => each.outerHTML.slice(0, 200)),
  regions: [...document.querySelectorAll("[role=region]")].map(each => each.getAttribute("aria-label")),
  repeated: [...document.querySelectorAll("figure > img")].filter(
    each => each.alt === each.nextElementSibling.textContent).length,
  tables: [...document.querySelectorAll("table")].filter(each => !each.caption?.textContent.trim()).length,
  headers: document.querySelectorAll("table th:not([scope])").length,
  scripts: document.scripts.length,
  language: document.documentElement.lang,
  targets: [...document.querySelectorAll("a[href^='#']")].filter(
    each => !document.getElementById(each.hash.slice(1))).length,
})"""
# Metric, setting and exact numbers of each row of the summary.
ROWS = """[...document.querySelectorAll("section[aria-labelledby=numbers] tbody tr")].map(row => [
  row.cells[0].firstChild.textContent.trim(), row.cells[1].textContent,
  [...row.querySelectorAll("data")].map(each => each.value)])"""
BOXES = """Object.fromEntries([
  ["answer", ".certificate .badge, .certificate .counts"], ["figure", ".drawing svg"], ["images", ".opening-strip ul"],
].map(([name, selector]) => {
  const box = [...document.querySelectorAll(selector)].find(each => each.checkVisibility())?.getBoundingClientRect();
  return [name, box ? [box.left, box.top, box.right, box.bottom] : []];
}))"""
VISIBLE = "(name => [...document.querySelectorAll(name)].filter(each => each.getClientRects().length))"
NUMBERS = ("estimate", "low", "high", "null", "p_value", "n", "published")


def few(store: Store, **fields: Any) -> Run:
    return pages.ran(store, Spec("toys", "few", fields))


def test_page_numbers_equal_tables(smoke: Run, opened: Page) -> None:
    numbers = {(metric, setting): values for metric, setting, values in opened.evaluate(ROWS)}
    assert len(numbers) == len(smoke.summary) > 10
    for row in smoke.summary:
        setting = ", ".join(f"{name} = {value}" for name, value in json.loads(row["setting"]).items())
        expected = [repr(row[name]) for name in NUMBERS if row[name] is not None]
        assert expected == numbers[row["metric"], setting]


def test_certificate_precedes_full_answer_and_evidence(smoke: Run, opened: Page) -> None:
    assert smoke.verdict is not None
    first = "document.querySelector('main section')"
    answer = "document.querySelector('main > .answer')"
    assert opened.evaluate(f"{first}.className") == "certificate"
    assert smoke.verdict.answer in opened.evaluate(f"{first}.querySelector('.badge').innerText")
    first_page = opened.evaluate(f"{first}.textContent")
    assert smoke.verdict.limits in first_page
    assert smoke.verdict.sentence == opened.evaluate(f"{answer}.querySelector('.sentence').textContent")
    metrics = opened.evaluate(f"[...{answer}.querySelectorAll('tbody th')].map(each => each.textContent.trim())")
    assert [metric for metric, _ in smoke.verdict.rows] == metrics


def first_screen(browser: Browser, page_path: Path, width: int, height: int) -> dict[str, list[float]]:
    """Left, top, right and bottom of the answer, the first figure and the images next to the answer."""
    boxes: dict[str, list[float]] = browser.open(page_path, width, height).evaluate(BOXES)
    return boxes


def test_first_wide_screen_has_answer_and_figure(browser: Browser, page_path: Path) -> None:
    boxes = first_screen(browser, page_path, 1280, 800)
    assert boxes["answer"][1] < 250
    assert boxes["figure"][0] >= boxes["answer"][2]  # to the right of the answer
    assert boxes["figure"][2] > 1200
    assert 0 < boxes["figure"][1] < boxes["figure"][3] <= 800
    assert 0 < boxes["images"][1] < boxes["images"][3] <= 800


def test_first_screen_of_sweep_is_its_chart(browser: Browser, drawn_sweep: Path) -> None:
    boxes = first_screen(browser, drawn_sweep, 1280, 800)
    assert boxes["answer"][1] < 250
    assert boxes["figure"][2] - boxes["figure"][0] > 1280 / 2
    assert boxes["figure"][3] <= 800
    assert boxes["answer"][2] > 1200


def test_phone_screen_has_answer(browser: Browser, page_path: Path, drawn_sweep: Path) -> None:
    for path in (page_path, drawn_sweep):
        boxes = first_screen(browser, path, 390, 844)
        assert boxes["answer"][1] <= 300
        assert boxes["figure"][1] < 2 * 844


def test_page_repeats_first_images_only_if_shown(smoke: Run, browser: Browser, tmp_path: Path) -> None:
    picture = Picture(encode_png(np.zeros((4, 4, 1), np.uint8)), "row 3", "Training image 3", "Most memorised")
    other = replace(picture, group="Least memorised")
    path = tmp_path / "report.html"
    strip = "[...document.querySelectorAll('.opening-strip img')].map(each => each.alt)"
    for gallery, count in (
        (Gallery("Images.", True, pictures=(picture, picture, other)), 2),
        (Gallery("Images.", False, "Images of mine are your own data."), 0),
    ):
        path.write_text(page._page(smoke, [], gallery))
        assert browser.open(path).evaluate(strip) == [picture.alt] * count


def test_long_tables_are_folded(smoke: Run, browser: Browser, page_path: Path) -> None:
    window = browser.open(page_path)
    rows = "[...document.querySelectorAll('tbody tr')].filter(each => each.checkVisibility()).length"
    assert len(smoke.summary) > 12
    visible_count = window.evaluate(rows)
    window.call("Emulation.setEmulatedMedia", {"media": "print"})
    assert window.evaluate(rows) >= visible_count + len(smoke.summary)


def test_page_requests_nothing_from_the_network(opened: Page, page_path: Path) -> None:
    requested = []
    for address in opened.requests():
        if not address.startswith("data:"):
            requested.append(address)
    assert [page_path.as_uri()] == requested
    text = page_path.read_text()
    assert re.findall(r"(?:src|href|url\()=?[\"']?(?:https?:)?//[^\"')\s]*", text) == []
    assert opened.complaints() == []


def test_page_opens_in_sandboxed_frame(browser: Browser, page_path: Path, tmp_path: Path) -> None:
    text = json.dumps(page_path.read_text()).replace("</", "<\\/")
    outer = tmp_path / "outer.html"
    outer.write_text(f"""<!doctype html><iframe sandbox="allow-scripts" width="900" height="900"></iframe><script>
        const page = new Blob([{text}], {{type: "text/html"}});
        window.shown = new Promise(done => document.querySelector("iframe").onload = done);
        document.querySelector("iframe").src = URL.createObjectURL(page);
    </script>""")
    window = browser.open(outer)
    window.evaluate("window.shown.then(() => true)")
    inside = window.frame()
    assert inside.evaluate("document.querySelectorAll('h1').length") == 1
    assert inside.evaluate("getComputedStyle(document.body).maxWidth") == "1280px"
    assert inside.evaluate("[...document.images].filter(each => !each.naturalWidth).length") == 0
    assert inside.evaluate("document.images.length") > 3
    assert [*window.complaints(), *inside.complaints()] == []


@pytest.mark.parametrize("framed", ["not at all", "as a blob", "as srcdoc"])
def test_section_links_work_in_sandboxed_frame(browser: Browser, page_path: Path, tmp_path: Path, framed: str) -> None:
    text = page_path.read_text()
    outer = tmp_path / "outer.html"
    quoted = json.dumps(text).replace("</", "<\\/")
    show = f"frame.src = URL.createObjectURL(new Blob([{quoted}], {{type: 'text/html'}}))"
    show = f"frame.srcdoc = {quoted}" if framed == "as srcdoc" else show
    outer.write_text(f"""<!doctype html><body style="margin: 0"><iframe id="frame" sandbox="allow-scripts"
        style="border: 0" width="900" height="900"></iframe><script>
        window.shown = new Promise(done => frame.onload = done);
        {show}</script>""")
    window = browser.open(page_path if framed == "not at all" else outer, width=900)
    if framed != "not at all":
        window.evaluate("window.shown.then(() => true)")
    inside = window if framed == "not at all" else window.frame()
    links = inside.evaluate("[...document.querySelectorAll('nav button')].map(each => each.popoverTargetElement.id)")
    assert len(links) > 5
    for link in ["to-main", *links]:
        section = link.removeprefix("to-")
        button = f"document.querySelector('[popovertarget={link}]')"
        position = f"document.getElementById('{section}').getBoundingClientRect().y"
        settled_position = (
            f"new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({position}))))"
        )
        if link != "to-main":  # which is seen only while the keyboard is on it
            box = f"scrollTo(0, 0); let box = {button}.getBoundingClientRect();"
            window.click(
                *inside.evaluate(f"(() => {{ {box} return [box.x + box.width / 2, box.y + box.height / 2] }})()")
            )
            assert 0 <= inside.evaluate(settled_position) <= 600, link
            assert inside.evaluate("document.activeElement.id") == f"at-{section}"
        inside.evaluate(f"scrollTo(0, 0); {button}.focus()")
        window.enter()
        assert 0 <= inside.evaluate(settled_position) <= 600, link
        assert link == inside.evaluate("document.activeElement.id")
        window.escape()
        assert inside.evaluate(f"document.activeElement === {button}")
    assert inside.complaints() == []


def test_printed_figures_are_large_enough(browser: Browser, page_path: Path) -> None:
    page = browser.open(page_path)
    page.call("Emulation.setEmulatedMedia", {"media": "print"})
    page.call("Emulation.setDeviceMetricsOverride", PAPER)
    layout = page.evaluate("""({
      widths: [...document.querySelectorAll(".drawing svg")].map(each => each.getBoundingClientRect().width),
      beside: [...document.querySelectorAll(".figures figure")].every(each =>
        each.querySelector("figcaption").getBoundingClientRect().left
        >= each.querySelector(".drawing").getBoundingClientRect().right),
      whole: [...document.querySelectorAll("figure, tbody tr")].map(each => getComputedStyle(each).breakInside),
      headings: [...document.querySelectorAll("h2, h3, caption, thead")].map(each => getComputedStyle(each).breakAfter),
    })""")
    assert {round(width * 72 / 96) for width in layout["widths"]} == {PRINTED_WIDTH}
    assert layout["beside"]
    assert {"avoid"} == set(layout["whole"]) == set(layout["headings"])


def test_print_shows_first_records_of_each_group(smoke: Run, browser: Browser, tmp_path: Path) -> None:
    records = tuple(
        Record(f"q{number}", (("asked", "?"),), group) for group in ("one", "two") for number in range(PRINTED + 2)
    )
    path = tmp_path / "report.html"
    path.write_text(page._page(smoke, [], Gallery("Records.", True, records=records)))
    visible_count = f"{VISIBLE}('.records li').length"
    notice = f"{VISIBLE}('.in-print').map(each => each.textContent)"
    opened = browser.open(path)
    assert opened.evaluate(visible_count) == len(records)
    assert opened.evaluate(notice) == []
    opened.call("Emulation.setEmulatedMedia", {"media": "print"})
    assert opened.evaluate(visible_count) == 2 * PRINTED
    assert f"The printed page shows {2 * PRINTED} of {len(records)}" in opened.evaluate(notice)[0]


def test_page_is_accessible_to_screen_readers(opened: Page) -> None:
    structure = opened.evaluate(STRUCTURE)
    assert structure["headings"][0] == 1
    assert structure["headings"].count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(structure["headings"]))
    assert structure["landmarks"] == [1, 1, 1, 1]
    assert sorted(set(structure["ids"])) == sorted(structure["ids"])
    assert sorted(set(structure["regions"])) == sorted(structure["regions"])
    assert structure["repeated"] == 0
    assert tuple(structure[name] for name in ("unnamed", "tables", "headers", "scripts", "targets", "language")) == (
        [],
        0,
        0,
        0,
        0,
        "en",
    )
    assert opened.evaluate("document.querySelectorAll('figure svg[role=img]').length") > 3


def test_keyboard_reaches_everything(browser: Browser, page_path: Path) -> None:
    window = browser.open(page_path)
    window.tab()
    assert window.evaluate("document.activeElement.textContent") == "Skip to the content"
    stops = """[...document.querySelectorAll('a, button, summary, [tabindex="0"]:not(details [tabindex])')]"""
    stop_count = window.evaluate(f"{stops}.filter(each => each.checkVisibility()).length")
    focused = set()
    for _ in range(stop_count):
        script = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
        focused.add(window.evaluate(script))
        assert window.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        window.tab()
    assert stop_count == len(focused)


@pytest.mark.parametrize("width", [390, 768])
def test_narrow_screen_scrolls_only_tables(browser: Browser, page_path: Path, width: int) -> None:
    window = browser.open(page_path, width=width)
    window.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    wide = window.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1] <= width


def test_page_follows_light_or_dark_theme(browser: Browser, page_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.querySelector('figure svg text')).fill"
    colours = []
    for window in (browser.open(page_path, dark=False), browser.open(page_path, dark=True)):
        colours.append([window.evaluate(ground), window.evaluate(text)])
    assert [colour[0] for colour in colours] == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]
    assert colours[0][1] != colours[1][1]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("ground", ["paper", "band"])
@pytest.mark.parametrize("ink", ["ink", "muted", "twin", "canary", "accent", "ochre"])
def test_text_stands_out_from_its_ground(ink: str, ground: str, dark: bool) -> None:
    lighter, darker = sorted((luminance(PALETTE[name][dark]) for name in (ink, ground)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = []
    for part in parts:
        linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_figure_files_are_replaced(smoke: Run) -> None:
    folder = smoke.store.folder("runs", smoke.name, "figures")
    (folder / "earlier.svg").write_text("<svg/>")
    pages.draw(smoke)
    names = [path.name for path in folder.iterdir()]
    assert "effect.svg" in names
    assert "earlier.svg" not in names
    assert [name for name in names if not name.endswith(".svg")] == []


def test_outside_text_is_never_markup(store: Store, browser: Browser) -> None:
    markup = "<script>document.title='had'</script><img src=x onerror=alert(1)>\"'"
    run = few(store, label=markup)
    page_path = pages.draw(run)
    window = browser.open(page_path)
    assert window.evaluate("document.scripts.length") == 0
    assert window.evaluate("document.images.length") == 0
    assert window.evaluate("document.body.textContent").count(markup) >= 1


def test_page_without_answer_shows_first_number(store: Store) -> None:
    page_text = pages.words(pages.draw(few(store)))
    assert "sum: 15, over 6 parts" in page_text
    assert "without an answer" in page_text


def test_failed_job_has_traceback_and_next_command(store: Store, tmp_path: Path) -> None:
    run = few(store, trouble="raise", at=2, folder=str(tmp_path))
    page_text = pages.words(pages.draw(run))
    assert "1 job failed, and 1 that need them could not be computed" in page_text
    assert "ValueError: part 2 cannot be had" in page_text
    assert 'raise ValueError(f"part {config.number} cannot be had")' in page_text
    assert f"engram resume {run.name}" in page_text
    assert "There is no answer yet" in page_text


def test_tolerated_failure_is_called_tolerated(store: Store, tmp_path: Path) -> None:
    spec = Spec("toys", "few", {"trouble": "raise", "at": 2, "folder": str(tmp_path)})
    execution = replace(pages.HERE, tolerate=1)
    page_text = pages.words(pages.draw(pages.ran(store, spec, execution)))
    assert "sum: 13, over 5 parts" in page_text
    assert "1 job failed and was tolerated" in page_text


def test_private_run_shows_only_error_type(store: Store) -> None:
    config = made.embedded(feature=Words("JANE DOE", size=9))
    run = made.run(store, "unique_feature-1", {"summary": []}, config)
    key = "f" * 64
    error = "ValueError: words is 'JANE DOE'; the font of /home/ann has no 'J'"
    store.write_failure(key, f"Traceback:\n{error}")
    run.journal.append([{"event": "started"}, {"event": "failed", "key": key, "task": "toys.part", "error": error}])
    text = pages.draw(open_run(store, run.name)).read_text()
    assert (
        "ValueError, whose message may contain private data; `engram runs status unique_feature-1` prints the message"
        in text
    )
    assert ("JANE" in text, "/home/ann" in text) == (False, False)


def planned_run(store: Store, spec: Spec) -> Run:
    """A run of this specification, without results."""
    (pinned,) = pin_cells(resolve_cells(spec), {})
    journal = Journal(store.folder("runs") / f"{spec.audit}-1")
    journal.create(cell_description(pinned), plan_of(pinned))
    return open_run(store, journal.run)


def test_command_masks_private_fields(store: Store, tmp_path: Path) -> None:
    spec = Spec("unique_feature", "quickstart", {"feature": '{"words": "JANE DOE", "size": 5}', "scale": "tiny"})
    words = shlex.split(configuration.command(planned_run(store, spec)) or "")
    assert words[:5] == ["engram", "run", "unique_feature", "--preset", "quickstart"]
    assert tuple(json.loads(words[5].partition("=")[2])[name] for name in ("words", "size")) == ("<4 and 3 letters>", 5)
    assert words[6:] == ["scale=tiny"]


def test_unrecorded_command_is_unknown(store: Store) -> None:
    run = made.run(store, "unique_feature-1", made.tables(2))
    assert configuration.command(run) is None
    assert "Command that repeats this" not in pages.draw(run).read_text()


def test_command_with_tolerated_failures_states_the_number(store: Store) -> None:
    run = planned_run(store, Spec("toys", "few", {"label": "x"}, execution={"tolerate": 2, "together": 3}))
    assert configuration.command(run) == "engram run toys --preset few label=x --tolerate 2"


def test_unfinished_run_has_a_notice(store: Store) -> None:
    cell = Cell("toys", toys.Config(), "few")
    journal = Journal(store.folder("runs") / "toys-1")
    about = {"audit": "toys", "preset": "few", "setting": {}, "config": plain(cell.config)}
    journal.create(about, plan_of(cell))
    page_text = pages.words(pages.draw(open_run(store, journal.run)))
    assert "7 of 7 jobs are not computed yet" in page_text
    assert "engram resume toys-1" in page_text
    assert "There is no answer yet" in page_text


def test_command_repeats_the_run(smoke: Run, swept: Run, store: Store) -> None:
    run_with_fields = few(store, parts="3", label="a b'c")
    for run in (smoke, swept, run_with_fields):
        command = configuration.command(run)
        assert command is not None
        _, _, audit, *words = shlex.split(command)
        assert run.audit == audit
        preset = words[words.index("--preset") + 1]
        swept_words = []
        for index, word in enumerate(words):
            if word == "--sweep":
                swept_words.append(words[index + 1])
        set_words = [word for word in words if "=" in word and word not in swept_words]
        spec = Spec(audit, preset, specification.settings(set_words), specification.sweeps(swept_words))
        cells = pin_cells(resolve_cells(spec), {})
        assert sorted(cell.name for cell in run.cells or (run,)) == sorted(
            start([cell], run.store, pages.HERE).run for cell in cells
        )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec("toys", "three"), ""),
        (Spec("toys", "three", {"label": "x", "scale": "tiny"}), " label=x scale=tiny"),
        (Spec("toys", "three", {"label": "x"}, {"at": (7, 8)}), " label=x --sweep at=7,8"),
        (Spec("toys", "three", {"first": 0}, {"label": ("x", "y")}), " first=0 --sweep label=x,y"),
    ],
)
def test_command_of_preset_repeats_all_cells(store: Store, spec: Spec, words: str) -> None:
    run = pages.ran(store, spec)
    assert configuration.command(run) == f"engram run toys --preset three{words}"
    for cell in run.cells:
        command = configuration.command(cell)
        assert command is not None
        (repeated,) = resolve_cells(Spec("toys", "three", specification.settings(shlex.split(command)[5:])))
        assert cell.name == start([repeated], store, pages.HERE).run


def test_varied_fields_include_published_value(store: Store) -> None:
    settings = {setting.name: setting for setting in configuration.settings(pages.ran(store, Spec("toys", "three")))}
    assert (settings["parts"].values, settings["parts"].published, settings["parts"].varied) == (("2", "3"), "6", True)
    assert (settings["first"].values, settings["first"].published, settings["first"].varied) == (("0", "1"), None, True)


def test_sweep_shows_only_distinguishing_fields(store: Store) -> None:
    text = pages.draw(pages.ran(store, Spec("toys", "three"))).read_text()
    table = text[text.index('class="numbers"') :].partition("</table>")[0]
    assert re.findall(r'<th scope="col">([^<]+)</th>', table)[:3] == ["label", "effect, 95 % interval", "answer"]
    assert "How does the answer change with label?" in text
    assert text.count('<span class="mark">varied</span>') == 3


def test_empty_summary_has_a_note(store: Store) -> None:
    run = pages.ran(store, Spec("toys", set={"trouble": "nothing"}))
    page_text = pages.words(pages.draw(run))
    assert "The summary of this run has no rows." in page_text
    assert "pictures: 1 row of 2 columns" in page_text
    swept = pages.ran(store, Spec("toys", set={"trouble": "nothing"}, sweep={"label": ["a", "b"]}))
    assert "none yet" not in pages.words(pages.draw(swept))


def test_deviations_from_published_settings_are_marked(smoke: Run) -> None:
    settings = {setting.name: setting for setting in configuration.settings(smoke)}
    names = ("question.canaries", "question.training.epochs", "question.data")
    assert tuple(settings[name].published for name in names) == ("100", "500", "mnist")
    assert settings["question.training.batch"].published is None
    assert {setting.name for setting in configuration.data_sets(smoke)} == {"digits", "photos"}
    assert all(re.fullmatch("[0-9a-f]{64}", setting.digest) for setting in configuration.data_sets(smoke))


def test_preset_settings_are_folded(store: Store) -> None:
    run = few(store, label="mine")
    own_settings = []
    for setting in configuration.settings(run):
        if setting.is_own:
            own_settings.append(setting)
    assert [(setting.name, setting.values) for setting in own_settings] == [("label", ("mine",))]
    how = pages.draw(run).read_text().partition('id="how"')[2]
    opened, _, folded = how.partition('<details class="printed">')
    assert "1 field of " in opened
    assert ">label" in opened
    assert ">parts" in folded.partition("</details>")[0]
    assert ">parts" not in opened
    assert "have the values of the preset few" in pages.words(pages.draw(few(store)))


def test_page_has_method_and_source(smoke: Run, page_path: Path) -> None:
    page_text = pages.words(page_path)
    assert "Method, source and decisions" in page_text
    assert "Source. Hartley & Tsaftaris 2022" in page_text
    method = page_path.read_text().partition("Method, source and decisions")[2]
    assert "`" in configuration.audits.find(smoke.audit).documentation
    assert "<code>" in method
    assert "`" not in method.partition("</section>")[0]


def test_interval_of_small_sample_is_hidden(store: Store) -> None:
    run = made.run(store, "unique_feature-1", made.tables(2))
    of_two = [row for row in run.summary if row["n"] == 2]
    assert of_two
    assert {(row["low"], row["high"]) for row in of_two} == {(None, None)}
    assert any(row["low"] is not None for row in run.table("summary").to_pylist())  # the table keeps them


def test_sweep_page_shows_all_cells(swept: Run, drawn_sweep: Path, browser: Browser) -> None:
    window = browser.open(drawn_sweep)
    rows = "[...document.querySelectorAll('section[aria-labelledby=answer] tbody tr')]"
    assert window.evaluate(f"{rows}.map(row => row.cells[0].textContent)") == ["A", "X"]
    runs = window.evaluate(f"{rows}.map(row => [...row.cells].at(-1).textContent)")
    assert [cell.name.rpartition("-")[2] for cell in swept.cells] == runs
    links = window.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)  # others would be dead in MLflow's frame, and by mail
    values = window.evaluate(f"{rows}.map(row => row.querySelector('data').value)")
    assert [repr(page.evidence(cell)[0]["estimate"]) for cell in swept.cells] == values
    text = window.evaluate("document.body.textContent")
    assert all(cell.verdict is not None and cell.verdict.sentence in text for cell in swept.cells)
    assert window.evaluate("document.querySelectorAll('figure svg[role=img]').length") == 2


@pytest.mark.slow
def test_thousand_canaries_make_a_small_page(store: Store, browser: Browser) -> None:
    """Synthetic tables, a real page and a real browser."""
    config = made.embedded(canaries=1000)
    cell = Cell("unique_feature", config)
    plan = plan_of(cell)
    tables = made.tables(1000) | {"canary_verdicts": [made.verdicts(1000)]}
    for root, keys in plan.roots.items():
        for number, key in enumerate(keys):
            part = tables[root][number] if root in tables else pa.table({"canary": [number]})
            store.write(key, part, test_provenance.RECORD | {"task": plan.task(key)})
    for key in sorted(plan.jobs.keys() - store.keys()):
        store.write(key, pa.table({"seed": [0]}), test_provenance.RECORD | {"task": plan.task(key)})
    journal = Journal(store.folder("runs") / "unique_feature-1000")
    about = {"audit": "unique_feature", "preset": None, "setting": {}, "config": plain(config)}
    journal.create(about, plan)
    page_path = pages.draw(open_run(store, journal.run))
    opened = browser.open(page_path)
    assert opened.evaluate("document.querySelectorAll('.sheet tbody tr').length") == 2000  # scores and verdicts
    assert sum(path.stat().st_size for path in (page_path.parent / "figures").iterdir()) < 1_500_000
    assert page_path.stat().st_size < 5_000_000


def test_page_of_ended_run_is_finished(tmp_path: Path) -> None:
    """The driver still owns the run while it draws the page."""
    shell = Shell(tmp_path)
    distribution = tmp_path / "packages" / "engram_audit-0.1.0.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: engram-audit\nVersion: 0.1.0\n")
    (distribution / "entry_points.txt").write_text("[engram.reports]\nrun = dashboards.page:draw\n")
    shell.env["PYTHONPATH"] += os.pathsep + str(distribution.parent)
    del shell.env["ENGRAM_REPORT"]
    report = shell.json("run", "toys", "--preset", "few", "--address", "none")
    assert "✓ finished" in pages.words(Path(report["report"]))
    assert "0.1.0" in Path(report["report"]).read_text()


def test_users_images_are_only_on_private_page(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = made.embedded(data=test_gallery.users_images(tmp_path / "data" / "mnist"))
    run = made.run(store, "unique_feature-1", made.tables(3), config)
    public = pages.draw(run, show_images=False)
    private = public.with_name("report-with-images.html")
    assert (private.exists(), "data:image" in public.read_text()) == (False, False)
    pages.draw(run, show_images=True)
    assert ("data:image" in private.read_text(), "data:image" in public.read_text()) == (True, False)


def test_failed_write_keeps_old_page(store: Store) -> None:
    run = few(store)
    page_path = pages.draw(run)
    before = page_path.read_text()
    figures = page_path.parent / "figures"
    for path in figures.iterdir():
        path.unlink()
    figures.rmdir()
    figures.write_text("in the way")
    with pytest.raises(OSError, match="figures"):
        pages.draw(run)
    assert before == page_path.read_text()
    assert list(page_path.parent.glob(".report*")) == []
