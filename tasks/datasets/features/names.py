"""Common given names and surnames, in plain Latin letters, by length."""

from __future__ import annotations

import functools

GIVEN = """
al bo di ed jo lu ty vi
abe ada amy ana ann art asa ava ben bob cal dan dee don dot eli eva eve fay gil gus guy hal ian ida ike ira ivy jan jay
jim joe jon joy kay ken kim kit lee len leo les lia liz lou mae max may meg mia moe ned nia noa pam pat peg rae ray rex
rob rod ron roy sal sam sid sue ted tim tom una uwe van vic wes zoe
abel adam aida alan alba aldo alec alex alma amir anja anna anne anya arlo axel beth bill bram burt cara carl chad cleo
cody cora dale dana dave dean dina dirk dora doug drew earl edna ella elsa emil emma enid eric erin evan ezra finn fred
gail gene gina glen greg gwen hans hope hugh hugo inez inga iris isla ivan jack jade jake jane jean jeff jens jill joan
jody joel john jose josh juan judy june karl kate kirk kurt kyle lars leah lena lila lily lisa lois lola lori luca lucy
luis luke lyle lynn mara marc mark mary matt maud mike milo mina mona myra nash neil nell nico nina noah noel nora olaf
olga omar oran oren otis otto owen paul pete phil rita rosa rose ross ruby rudy russ ruth ryan sara saul sean seth shay
sofi stan tara tess theo tina todd tony troy vera vito wade walt will xena yuri yves zack zara
aaron abbie adele agnes aisha alice allan amber amina anita april arjun barry becky bella betty blake bobby boris brent
brian bruce bryan caleb carla carlo carol casey cathy chloe chris cindy clara clark craig cyril cyrus daisy danny david
debra derek diana diane donna doris dylan eddie edgar edith edwin elena elias eliza ellen ellis elmer elsie emily emmet
erica erika ernst ethan ethel evita felix fiona flora floyd frank freya garry gavin geoff glenn grace grant greta hanna
harry hazel heath heidi helen helga henry holly homer imani inger irene irwin isaac ivana jacob james jamie janet jared
jason jenny jerry jesse jimmy jorge josef joyce juana judas julia julie karen karin katie keith kelly kevin larry laura
leila lenny leona lewis lilia linda lloyd logan loren louis lucas lucia lydia mabel madge maeve maria marie mario marta
mavis megan merle meryl micah miles mindy molly monty moses nadia nancy naomi nelly niels nigel oscar pablo paige patsy
patty paula pearl pedro perry peter petra polly priya quinn ralph ramon randy raoul robin roger roman rosie rufus sadie
sally sandy sarah scott selma shane simon sofia steve susan sybil tanya terry tracy trent ulric vince viola wanda wayne
wendy willa woody yusuf
albert alexis alfred alicia alison alvaro amanda amelia andrea andrew angela ariana arnold astrid aubrey audrey august
austin barney benito bertha bianca billie blanca bonnie brooke calvin camila carlos carmen carrie cecile cedric celine
cheryl claire claude connie daniel daphne debbie denise dennis dexter dianne dmitri donald dorian duncan dustin dwight
edmund edward eileen elaine elinor elisha esther eugene eunice evelyn fatima felipe fergus franco frieda gareth george
gerald gerard giulia gladys gloria gordon graham hannah harold harvey hector helena herman hilary howard hubert ignace
ingrid irving isabel ismael israel jackie jasper javier jeremy jerome jessie joanna joanne johann jordan josefa joseph
joshua judith julian juliet justin kelvin kieran kirsty laurel lauren laurie leslie lester lilian lionel lorena louise
lucile ludwig luther manuel marcel marcia marcus margie margot marian marina marion marisa marius marlon martha martin
marvin maxine melvin michel miguel millie minnie miriam mohsen monica morgan morris muriel myriam myrtle nathan nettie
nicola nicole norman norris oliver olivia olympe oswald pamela pascal paulus peggie philip phoebe rachel rafael ramiro
ramona raquel regina reuben robert rodney roland ronald rosina rowena rupert russel salome samuel sandra selina serena
sergei sergio shanna sharon sheila sidney silvia simone sophia sophie stella steven stuart sylvia teresa thelma thomas
tobias trevor ursula valery verona victor violet virgil vivian walter warren wesley wilbur willie winona xavier yasmin
yvette yvonne
abigail adriana alberta aldrich alfonso allegra allison ambrose anatole andreas annette anthony antoine antonia antonio
arianna ariella barbara barnaby barrett beatriz belinda bernard bernice bethany bettina bradley brandon brendan brianna
britney cameron camilla candace carlton carolyn cecilia celeste chandra charity charles charlie chelsea chester chloris
claudia clayton clement clifton colette corinne crystal cynthia deborah delores desmond diamond dolores dorothy douglas
eduardo eleanor elliott elspeth emanuel ephraim ernesto estelle everett fabiola fabrice felicia florian frances francis
frankie freddie gabriel genevra georgia gerardo gilbert giorgio giselle gregory gustavo gwyneth harriet heather herbert
hermann horatio isadora isidore jacinta jackson jasmine javiera jeffrey jessica joachim joaquin jocelyn johanna justine
kathryn kenneth kirsten kristen lambert lavinia leandro leonard leonora leopold letitia lillian lorenzo lucille lucinda
madison malcolm mariana marilyn marissa marjory marlene marshal matilda matthew maurice maxwell melanie melissa michael
mildred minerva mitchel mohamed natalia natalie natasha norbert octavia ophelia orlando ottavio patrice patrick pauline
phillip phyllis preston quentin randall raphael raymond rebecca ricardo richard roberta roberto rodrigo rolando rosalie
rosanna roxanne rudolph russell sabrina santino sheldon shelley shirley solange spencer stanley stephan stephen suzanne
tabitha tatiana terence terrell theresa tiffany timothy tristan ulysses valerie vanessa vincent wallace wilfred wilhelm
william winston woodrow yolanda zachary
adelaide agustina alasdair alistair angelica angelina annalisa augustus aurelius beatrice benjamin bernardo bertrand
brigitte carolina caroline catalina catriona charlene clarence clarissa claudine clifford cordelia cornelia courtney
cristina danielle delphine dietrich dominica dominick douglass drusilla eleonora emmanuel euphemia fernando florence
francine franklin frederic gabriela geoffrey georgina germaine gertrude giovanni graciela griselda harrison hercules
hermione humphrey ignatius isabella isabelle jeanette jennifer jeremiah jermaine johannes jonathan josefina katarina
katerina kathleen kimberly kristina kristoff lancelot laurence lawrence leonardo llewelyn lorraine lucretia madeline
magdalen marcella margaret marianne mariella marjorie matthias mauricio mercedes meredith michaela michelle montague
mortimer muhammad nathalie nicholas octavian patricia penelope percival perpetua philippa primrose prudence reginald
roderick rosalind rosamund rosemary salvador samantha sandrine santiago savannah scarlett sheridan stefania susannah
sylvaine terrence thaddeus theodora theodore thornton valentin veronica victoria vincenzo virginia vivienne vladimir
winifred zacharia
alejandro alexander alexandra anastasia annabelle augustine cassandra catherine celestine charlotte christian christina
christine constance cornelius dominique elisabeth elizabeth ernestine esmeralda ferdinand francesca francisco frederica
frederick gabrielle genevieve geraldine gwendolyn henrietta hildegard josephine katharina katherine mackenzie madeleine
magdalena marcellus margarita nathaniel nicolette philomena priscilla rosalinda sebastian seraphina stephanie sylvester
theodosia valentina valentino
clementine maximilian persephone
"""

SURNAMES = """
an du ho ky le li lo lu ly ma mo ng oh so to tu vo vu wu xu ye yi yu
ali ash ayo bai bay bey bly boy cai cao cho chu coe cox cui das day dee dia doe dow dye eck ely eng fan fay fox fry gao
gay geo gil goh guo guy han hsu hue hui huo ivy jin joy kay key kim koo kuo lai lam lau law lay lee lei lew lim lin liu
loy luo mac mao may mei nam nix noe noh ong orr ott paz poe pry ray rea reo rey roe roy rue ruo ryu sen shi sim son soo
tam tan tao toy tse van wei won woo yan yoo yun zhu
abad abel adam agee alba amin anda arce arms ayer baca bach bahr bain ball band bank barr bass beck bell berg best bird
blum bond bose bott boyd bull burk bush byrd cain carr case cash cass chan chen chin cobb cole cook coon cope cora cruz
dahl dale daly dame dang deal dean diaz dorn dove doyl drew duke dunn dyer earl eden egan erne espy fair falk farr fink
finn fish fitz ford frey funk gage gale garb gill glen gold good gray grim gunn guth haas hahn hale hall hand hart hays
head held herr hess hill hoff holt hong hood hope horn howe huff hull hunt hurd hyde jack jain jean judd jung kahn kane
kang karr katz keen kemp kent kern khan kidd king kirk klug koch kohl kong korn kuhn kurz lacy lake lamb land lane lang
lara lark last leal leon levy lind ling lock long lord love lowe luna lund lynn lyon maas mack mann marx mata mays mead
metz mill mohr monk moon mora moss muir mull musa nash neal ness noel nova nunn odom olds orth otto owen pace page paik
park parr pate peck pena penn pham pike pitt pond pool pope post pugh pyle quan rand reed reid rice rich ring rios roth
rowe ruiz rush russ rust saez sand sato seal shah shaw shea sims slow snow sosa soto spur ston suzu tang tate teal todd
tran tree tsai tuck vail vale vega vera voss wade wall walz wang ward ware webb weir weis west whit wild will wind wise
witt wolf wong wood wray wynn yang yoon york zane zeng zhou zink
abbas adams adler aiken allen alves amato amaya anton arias asher avila ayala ayers bacon baird baker banks barry bates
bauer beach beard berry biggs black blair blake blanc bloom boone booth borde bosch bowen boyer boyle brady brand braun
brock brown bruce bruno bryan bryce burke burns busch byrne caine calvo carey chang chase clark cohen colon combs conde
costa craft craig crane cross curry dalal davis deleo doyle drake duffy duran early eaton ebert elias ellis emery engel
ernst ervin estes evans faber felix ferro field finch floyd flynn foley force frank franz freed frost fuchs garza gates
gauss gibbs giles glass gomes gomez gould grant green gross gupta hagan haley hardy hayes heath heinz henry herzo hicks
hines hobbs hogan hooks house huang huber hurst irwin jacob jaime james jenks jones joshi joyce kapur kelly kerns kirby
klein knapp kraus krieg krupp kumar kunze lange larse leach leroy lewis locke logan lopez lowry lucas lynch lyons marks
mason mayer mccoy mcgee mckay mejia melis meyer mills mingo misra moody moore moran moser moses munoz myers nagel neves
noble nolan novak nunez ochoa olsen olson ortiz osman owens pabst padil parks patel payne pearl pease perez perry petty
pinto plath poole porte potts power pratt price prior pryor quinn ramos reese reyes reyna rhode riley rivas roach robin
rocha rogan rojas romeo roper rosen rossi rubin russo ryder salas sauer scott seitz sharp sheen short silva singh slack
sloan small smith snell solis spear stark steel stein stern stone stout stroh swain swann sweet tapia terry thorn titus
toler tovar tracy traut tripp tyler tyson unger upton urban vance velez villa vogel voigt walke walsh watts weber weeks
weiss welch wells wendt weyer white wolfe woods wyatt yates yoder young zhang zuber
abbott acosta alonso altman alvare amaral arnold ashton atkins austin avalos bailey barber barker barlow barnes barton
bauman beasle becker benson berger bernal bishop blanch bolton bonner booker bowers bowman bowser braden briggs bright
brooks bryant burger burgos burris burton bustos butler calder calvin camero campos cannon cantor carson carter carver
casper castro chavez childs clancy clarke colins conley conner conrad conway cooper corona cortez cowell crespo cruise
culver curtis dalton daniel dawson decker deleon dexter dickey dillon dixson dodson donald dorsey draper duarte dubois
dudley dugger duncan duncas dunlap durant durham duvall easton elliot emmons espino eubank farley farmer ferrer fields
finley fisher flores forbes foster fowler franco fraser french fuller gaines galvan garcia garner garvey german gibson
glover golden graham graves greene grimes guerra guzman haines hansen hanson harmon harper harris harvey hauser hayden
healey hector hefner heller henson herman herron hester hickey hinton holden holder holman holmes hooper hopper horton
howard howell hudson huerta hughes hunter hurley hutton ibarra ingram irving isaacs ivanov jacobs jansen jarvis jensen
jewell jordan joseph juarez kaiser kaplan keller kelley kendal kenney kimble kinney klause knight koenig kramer krause
kruger landry larson lawson lehman lennon leonar lester levine litton london lowery lucero ludwig madden maddox madrid
malone marino martin mathew matsui mattox mccabe mccall mccann mccray mcgill mclean medina meeker mellon melton mendez
mercer merkel meyers miller milton molina monroe montes moreno morgan morris morrow morton mosley mullen murphy murray
myrick nadeau nelson newman newton nguyen nichol norman norris norton obrien oliver oneals oneill orozco ortega osborn
owings palmer parker patton paxton pearce pelham penney peters petrov phelps philip pierce pitman porter potter powell
powers prince pruitt putnam quiroz ramsay ramsey randal rangel reeves reilly rhodes riddle rivera robert robins rodger
rogers romero rosado rubens rucker ryland sander savage sawyer schmid schulz sexton shafer sharma silver simons singer
skaggs slater sloane snyder solano sommer sparks spears spence stanto steele stefan steven stokes strong stuart suarez
sutton suzuki tanaka taylor temple thomas thomps thorne thorpe torres tucker turner ulrich valdes valdez vargas vaughn
vinson vogler wagner walden walker waller walter walton warner warren watson weaver webber werner weston whalen wiggin
wilcox wilder wilkin willis wilson winter wooten wright yamada yeager zamora zapata zepeda zimmer
aguilar aguirre aldrich allison andrews ashford babcock bagwell baldwin ballard barbosa barclay barnard barrera barrett
baxters beltran benitez bennett bentley bergman bernard blanton bolanos bowling boynton bradley brandon braxton brennan
bridges brogden browder bullard bullock burgess burnett cabrera calhoun camacho cameron carlson carlton carroll chapman
charles clayton clemens clement clifton cochran coleman collier collins colvard compton conklin connell connors conover
conyers cordero cordova correia costell couture cruzado culbert cummins cushing daniels davison delaney delgado dempsey
denning dickens dickson donahue donovan douglas dubrule duvalle edwards elliott emerson england english epstein escobar
estrada eubanks everett farrell ferrari findley fleming flowers fonseca fontana foreman forrest forsyth fortune frazier
freeman fremont fuentes gallego gardner garland garrett gentile gilbert gilmore godfrey goldman goodman goodwin grayson
gregory griffin guthrie hackett hammond hancock harding harrell hartley hartman hatcher hawkins heather hendrix herbert
herrera hickman higgins hodgson hoffman holcomb holland hollman hopkins hoskins houston hubbard huffman jackson jacques
jamison jenkins jimenez johnson justice kaufman kearney keating kendall kennedy khalili knowles knudsen lambert landers
langley larkins latimer leavitt leblanc leonard linares lindsay lindsey littles lombard macleod maddock mahoney manning
marquez marsden marshal martens mathews mathias matthew maxwell mcbride mccarty mcclure mcgrath mcguire mckenna mcnally
mcneill meadows mendoza merrill michael miranda mitchel monahan montano montoya morales mueller mullins murdock navarro
neville newberg newland nichols nielsen norwood obrecht oconnor olivier olmsted osborne overton pacheco painter parrish
parsons patrick pearson peralta perkins phillip pickett pierson pittman plummer pollard prather preston proctor quintan
ramirez randall rankins raymond redmond richard richter robbins roberts robison rodgers rollins rosales rowland russell
ryerson salinas salomon sampson sanchez sanders santana schafer schmidt sellers serrano seymour shannon shapiro shelton
shepard sherman shields sierras simmons simpson skinner spencer stanley stanton stevens stewart strauss summers swanson
sweeney thacker thurman tillman trevino valenti vasquez vaughan vickers vincent wallace walters watkins webster weinber
wellman wheeler whitley whitney whitten wiggins wilkins willard william winkler winston winters woodard woodson zimmerm
albright alvarado andersen anderson atkinson bachmann barnhart bartlett beaumont benjamin bergeron blackman bradford
bradshaw brewster brownlee buchanan burchett caldwell callahan campbell cardenas carrillo casillas castillo chambers
chandler clements connolly copeland cornwell coughlin crawford crenshaw crockett davidson delacruz dietrich domingue
drummond erickson espinoza faulkner ferguson figueroa fletcher fontaine franklin friedman fujimoto gallegos gardiner
garrison goldberg gonzales gonzalez goodrich griffith hamilton harrison hastings hathaway hoffmann holloway humphrey
hutchins ishikawa jacobsen jacobson jamieson jennings johnston kawasaki kingsley kirkland kowalski landsman langford
larocque lassiter lawrence lindgren lockhart lombardi lorenzen lovelace marchand marshall martinez mayfield mccarthy
mcdaniel mcdonald mcdowell mcintosh mcintyre mckenzie mckinney mcmillan melendez melville meredith merriman mitchell
montague monteiro morrison mulligan nakamura nicholas oldfield oliveira osterman petersen peterson phillips ponsonby
prescott quintana quintero ramsdell randolph reynolds richards richmond robinson rockwell ruthford salvador sandberg
sandoval santiago saunders schaefer schubert schultze schwartz shepherd sheridan sherwood simonsen sinclair sorensen
southern spalding stafford stanford stephens sterling stockton stoddard sullivan sundberg thibault thompson thorburn
thornton townsend trinidad trujillo valencia washburn watanabe waterman weinberg wheatley whitaker whitmore williams
winthrop woodbury woodruff woodward yamamoto youngman
alexander armstrong ballester bernstein blackburn blackwell blanchard broussard carpenter cavanaugh churchill contreras
dickerson donaldson duckworth ellington ellsworth fairchild fernandez fleischer gallagher gillespie goldstein greenberg
gutierrez halverson henderson hendricks hernandez jefferson johansson kuznetsov lancaster macdonald mackenzie maldonado
marquardt mcclellan mcconnell mccormick mcfarland mcpherson nicholson nishimura nordstrom olszewski patterson pemberton
pendleton pinkerton rasmussen reinhardt robertson rodriguez rosenberg rosenthal schneider schroeder takahashi templeton
underhill underwood velasquez wakefield weinstein westbrook whitfield wilkerson wilkinson yamaguchi zimmerman
boatwright easterling farnsworth huntington hutchinson livingston mcallister mclaughlin montgomery richardson rothschild
schumacher stephenson strickland sutherland vandermeer villanueva villarreal washington wellington williamson winchester
fitzpatrick kirkpatrick worthington
"""


@functools.cache
def names() -> dict[int, tuple[str, ...]]:
    """Map each length to the distinct names with that many letters, in lower case and sorted."""
    all_names = sorted({*GIVEN.split(), *SURNAMES.split()})
    result = {}
    for length in sorted(set(map(len, all_names))):
        result[length] = tuple(name for name in all_names if len(name) == length)
    return result
